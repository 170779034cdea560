// A program of Go that runs the assembly of the runtime and of the standard library:
// copies and searches of all sizes, hashes of maps' keys, digests, ciphers, elliptic
// curves, large numbers, on goroutines whose stacks are small and grow, while the
// collector works. It prints a digest of all results.
package main

import (
	"bufio"
	"bytes"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math"
	"math/big"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

// work gives a digest of what is computed from seed.
func work(seed int) string {
	h := sha256.New()
	put := func(v any) { fmt.Fprintln(h, v) }
	data := make([]byte, 1200)
	for i := range data {
		data[i] = byte(i*seed + i>>3)
	}
	for n := 0; n < 700; n = n + 1 + n/3 {
		at := n % 13
		moved := bytes.Clone(data)
		copy(moved[at:], moved[at+3:at+3+n])
		copy(moved[at+5:], moved[at:at+n])
		clear(moved[n/2 : n/2+n])
		put(crc32.ChecksumIEEE(moved))
		put(crc32.Checksum(moved[:n+1], crc32.MakeTable(crc32.Castagnoli)))
		part := moved[:n+at]
		put(bytes.IndexByte(part, byte(seed)))
		put(bytes.Count(part, []byte{byte(seed)}))
		put(strings.Count(string(part), "a"))
		put(bytes.Equal(part, data[:n+at]))
		put(bytes.Compare(part, data[at:at+n]))
		if n > 20 {
			put(bytes.Index(part, part[n-19:n-10]))
			put(strings.Index(string(part), string(part[n-9:n-1])))
		}
	}
	put(fmt.Sprint(md5.Sum(data), sha1.Sum(data), sha256.Sum256(data), sha512.Sum512(data)))
	keys := map[string]int{}
	words := map[[3]int]int{}
	longs := map[uint64]uint32{}
	for i := range 300 {
		keys[strings.Repeat("key", i%40)+fmt.Sprint(i)] = i
		words[[3]int{i, seed, -i}] = i
		longs[uint64(i*i)] = uint32(i)
	}
	for i := range 300 {
		put(keys[strings.Repeat("key", i%40)+fmt.Sprint(i)] + words[[3]int{i, seed, -i}] + int(longs[uint64(i*i)]))
	}
	for _, size := range []int{16, 24, 32} {
		block, err := aes.NewCipher(data[:size])
		if err != nil {
			panic(err)
		}
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			panic(err)
		}
		sealed := gcm.Seal(nil, data[:12], data[:333], data[400:419])
		open, err := gcm.Open(nil, data[:12], sealed, data[400:419])
		put(fmt.Sprint(sealed, open, err))
		out := make([]byte, 1024)
		cipher.NewCTR(block, data[:16]).XORKeyStream(out, data[:1024])
		put(out)
		block.Decrypt(out[:16], data[32:48])
		put(out[:16])
	}
	x := new(big.Int).SetBytes(data[:257])
	y := new(big.Int).SetBytes(data[300:431])
	q, r := new(big.Int).QuoRem(x, y, new(big.Int))
	put(q.String() + r.String() + new(big.Int).Lsh(q, 77).String() + new(big.Int).Rsh(x, 99).String())
	put(new(big.Int).Exp(y, big.NewInt(65537), new(big.Int).SetBit(x, 0, 1)).String() + new(big.Int).Sub(x, q).String())
	put(fmt.Sprint(math.Exp(float64(seed)/7), math.Log(float64(seed)+0.5), math.Floor(float64(seed)/3), math.Hypot(float64(seed), 3), math.Sqrt(float64(seed))))
	key := ed25519.NewKeyFromSeed(data[:32])
	put(ed25519.Verify(key.Public().(ed25519.PublicKey), data, ed25519.Sign(key, data)))
	a, err := ecdh.P256().NewPrivateKey(data[1:33])
	if err != nil {
		panic(err)
	}
	b, err := ecdh.P256().NewPrivateKey(data[40:72])
	if err != nil {
		panic(err)
	}
	s, err := a.ECDH(b.PublicKey())
	put(fmt.Sprint(s, err))
	put(verified)
	put(ecdsa.VerifyASN1(public, digest, signature))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

var (
	public    *ecdsa.PublicKey
	digest    []byte
	signature []byte
	verified  bool
)

// prepare makes a signature, which is another one each time.
func prepare() {
	key := &ecdsa.PrivateKey{D: big.NewInt(0x123456789abcdef)}
	key.Curve = elliptic.P256()
	key.X, key.Y = key.Curve.ScalarBaseMult(key.D.Bytes())
	sum := sha256.Sum256([]byte("kprobe"))
	digest, public = sum[:], &key.PublicKey
	var err error
	if signature, err = key.Sign(rand.Reader, digest, crypto.SHA256); err != nil {
		panic(err)
	}
	if _, err := x509.MarshalPKIXPublicKey(public); err != nil {
		panic(err)
	}
	verified = ecdsa.VerifyASN1(public, digest, signature)
}

func main() {
	prepare()
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		return
	}
	done := make(chan bool)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				runtime.GC()
			}
		}
	}()
	out := make([]string, 4)
	var wg sync.WaitGroup
	for i := range out {
		wg.Add(1)
		go func() {
			defer wg.Done()
			out[i] = work(i + 3)
		}()
	}
	wg.Wait()
	close(done)
	fmt.Println("done", strings.Join(out, " "))
	_, _ = in.ReadString('\n')
	os.Exit(7)
}
