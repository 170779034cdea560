package signature

import (
	"encoding/binary"
	"math"
	"reflect"

	"kprobe/fetch"
)

// Bind makes the arguments of a call from the values of a hit, which are those
// of Source or ABI; call makes the call, once, and gives the function's result,
// false where it has none. first is what the function takes before them, if it
// takes something (First).
//
// ok is false where a value could not be read and the parameter can't be nil;
// then call is nil.
func (f *Func) Bind(first any, vals []fetch.Value) (call func() (skip bool), ok bool) {
	args := make([]reflect.Value, 0, len(f.params)+1)
	if f.first != nil {
		args = append(args, reflect.ValueOf(first))
	}
	for i := range f.params {
		p := &f.params[i]
		if len(vals) < p.values {
			return nil, false
		}
		v, ok := p.value(vals[:p.values])
		if !ok {
			return nil, false
		}
		args = append(args, v)
		vals = vals[p.values:]
	}
	return func() bool {
		out := f.fn.Call(args)
		return len(out) > 0 && out[0].Bool()
	}, true
}

// value makes an argument; ok is false where it can't be read and can't be nil.
func (p *param) value(vals []fetch.Value) (v reflect.Value, ok bool) {
	first := &vals[0]
	switch {
	case p.t.Kind() == reflect.String:
		return reflect.ValueOf(string(first.Bytes)).Convert(p.t), !first.Fault
	case p.t.Kind() == reflect.Pointer && p.t.Elem().Kind() == reflect.String:
		if first.Fault {
			return reflect.Zero(p.t), true
		}
		v = reflect.New(p.t.Elem())
		v.Elem().SetString(string(first.Bytes))
		return v, true
	case p.t.Kind() == reflect.Pointer:
		b, ok := p.bytes(vals)
		if !ok {
			return reflect.Zero(p.t), true
		}
		v = reflect.New(p.t.Elem())
		fillData(v.Elem(), b)
		return v, true
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], first.Int)
	v = reflect.New(p.t).Elem()
	fillData(v, b[:])
	return v, !first.Fault
}

// bytes puts together what a pointer points to.
func (p *param) bytes(vals []fetch.Value) (b []byte, ok bool) {
	for i := range vals {
		if vals[i].Fault {
			return nil, false
		}
		for _, e := range vals[i].Elems {
			if e.Fault {
				return nil, false
			}
			var w [8]byte
			binary.LittleEndian.PutUint64(w[:], e.Int)
			b = append(b, w[:p.sizes[i]]...)
		}
	}
	return b, len(b) >= int(p.t.Elem().Size())
}

// fillData reads a number, an array or a struct from memory's bytes.
func fillData(v reflect.Value, b []byte) {
	switch v.Kind() {
	case reflect.Array:
		size := int(v.Type().Elem().Size())
		for i := range v.Len() {
			fillData(v.Index(i), b[i*size:])
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Name != "_" {
				fillData(v.Field(i), b[f.Offset:])
			}
		}
	default:
		fillNumber(v, b)
	}
}

func fillNumber(v reflect.Value, b []byte) {
	var w uint64
	size := int(v.Type().Size())
	for i := size - 1; i >= 0; i-- {
		w = w<<8 | uint64(b[i])
	}
	switch {
	case v.Kind() == reflect.Bool:
		v.SetBool(w != 0)
	case v.Kind() == reflect.Float32:
		v.SetFloat(float64(math.Float32frombits(uint32(w))))
	case v.Kind() == reflect.Float64:
		v.SetFloat(math.Float64frombits(w))
	case v.CanInt():
		shift := 64 - 8*size
		v.SetInt(int64(w) << shift >> shift)
	default:
		v.SetUint(w)
	}
}
