package probe

import (
	"encoding/binary"
	"math"
	"reflect"
	"runtime/debug"

	"kprobe/fetch"
)

// callArgs decodes the arguments of a jprobe that runs with the thread stopped;
// ok is false where one can't be read.
func (s *Session) callArgs(p *placed, r *Regs) (args []reflect.Value, ok bool) {
	s.ctx.Entry = nil
	rec, _ := p.prog.Eval(&s.ctx, s.rec[:0])
	s.rec = rec[:0]
	vals, err := p.prog.Decode(rec, nil)
	if err != nil {
		return nil, false
	}
	c := p.user.call
	if c.regs {
		args = append(args, reflect.ValueOf(r))
	}
	return c.args(args, vals)
}

// args makes the arguments of a call, behind those that are there.
func (c *call) args(args []reflect.Value, vals []fetch.Value) ([]reflect.Value, bool) {
	for i := range c.params {
		p := &c.params[i]
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
	return args, true
}

// run calls the function.
func (c *call) run(args []reflect.Value) (skip bool) {
	out := c.fn.Call(args)
	return len(out) > 0 && out[0].Bool()
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

// deliver calls the function of a jprobe with a hit that was recorded. The
// error is that of a function that panicked. s.sinkMu is held.
func (p *placed) deliver(h *Hit) (err error) {
	if p.user.gone.Load() {
		p.ev.lost.Add(1)
		return nil
	}
	vals, err := p.prog.Decode(h.Data, nil)
	if err != nil {
		p.ev.lost.Add(1)
		return err
	}
	c := p.user.call
	var args []reflect.Value
	if c.hit {
		args = append(args, reflect.ValueOf(h))
	}
	args, ok := c.args(args, vals)
	if !ok {
		p.ev.lost.Add(1)
		return nil
	}
	p.ev.recorded.Add(1)
	defer func() {
		if v := recover(); v != nil {
			p.ev.turn(false)
			err = &HandlerError{Probe: p.user.probe, Handler: "Entry", Value: v, Stack: debug.Stack()}
		}
	}()
	c.run(args)
	return nil
}
