// Values of all shapes that Rust passes in ways of its own: r_* return one, a_* take
// one. What rustc makes of them is held against what is told by debug information.
#![allow(dead_code, improper_ctypes_definitions)]
pub struct P { a: i32, b: u8 }
#[repr(C)]
pub struct PC { a: i32, b: u8 }
pub struct Q { a: u64, b: u32 }
#[repr(C)]
pub struct QC { a: u64, b: u32 }
#[repr(C, packed)]
pub struct Packed { a: u8, b: u32 }
#[repr(align(8))]
pub struct Aligned { a: u32, b: u32 }
#[repr(align(16))]
pub struct WideAligned { a: u32, b: u32 }
pub struct S12 { a: i32, b: i32, c: i32 }
pub enum E { A, B(i32), C { x: u8, y: f64 } }
#[repr(C)]
pub struct FC2 { a: f32, b: f32 }
pub struct F4 { a: f32, b: f32, c: f32, d: f32 }
pub struct FA { a: f64, b: [u8; 3] }
pub struct NP(P, ());
pub enum E3 { A(u8, u16), B(u32) }
pub struct F1 { a: f64 }
pub struct FB { a: f32, b: f32, c: f32 }
pub struct PF { a: f64, b: u64 }
#[repr(C)]
pub struct PFC { a: f64, b: u64 }
#[repr(C)]
pub struct BigC { a: u64, b: u64, c: u64 }
pub enum E0 { A(u32, u32), B(u64) }
pub enum Niche2 { A(u32, bool), B(u32) }
pub enum Dataful { A(u32, bool), B, C }
pub enum BoolOr { A(bool), B, C(bool) }
pub struct Ph(u32, std::marker::PhantomData<u64>, [u64; 0]);
#[derive(Clone, Copy)]
pub enum Clike { A = -1, B = 5 }
pub struct Wrap { c: Clike, o: Option<u16> }
pub enum Mixed4 { A(u32), B(i32), C(char), D }
pub struct Three { a: u8, b: Option<u8> }

macro_rules! shape {
    ($returned:ident, $taken:ident, $t:ty) => {
        #[no_mangle]
        pub fn $returned(f: fn() -> $t) -> $t { f() }
        #[no_mangle]
        pub fn $taken(x: $t, f: fn($t)) { f(x) }
    };
}

shape!(r_res_i32_u8, a_res_i32_u8, Result<i32, u8>);
shape!(r_res_u32_f32, a_res_u32_f32, Result<u32, f32>);
shape!(r_res_us_box, a_res_us_box, Result<usize, Box<i32>>);
shape!(r_res_u64_f64, a_res_u64_f64, Result<u64, f64>);
shape!(r_opt_box, a_opt_box, Option<Box<i32>>);
shape!(r_t_i32_u8, a_t_i32_u8, (i32, u8));
shape!(r_p, a_p, P);
shape!(r_pc, a_pc, PC);
shape!(r_q, a_q, Q);
shape!(r_qc, a_qc, QC);
shape!(r_packed, a_packed, Packed);
shape!(r_aligned, a_aligned, Aligned);
shape!(r_wide_aligned, a_wide_aligned, WideAligned);
shape!(r_a3, a_a3, [u8; 3]);
shape!(r_a8, a_a8, [u8; 8]);
shape!(r_a9, a_a9, [u8; 9]);
shape!(r_a16, a_a16, [u8; 16]);
shape!(r_a17, a_a17, [u8; 17]);
shape!(r_u64x2, a_u64x2, [u64; 2]);
shape!(r_u64x1, a_u64x1, [u64; 1]);
shape!(r_text, a_text, String);
shape!(r_t3, a_t3, (u8, u8, u8));
shape!(r_s12, a_s12, S12);
shape!(r_e, a_e, E);
shape!(r_f2, a_f2, (f64, f64));
shape!(r_ff2, a_ff2, (f32, f32));
shape!(r_fc2, a_fc2, FC2);
shape!(r_f4, a_f4, F4);
shape!(r_fa, a_fa, FA);
shape!(r_opt_pair, a_opt_pair, Option<(i32, i32)>);
shape!(r_opt_a8, a_opt_a8, Option<[u8; 8]>);
shape!(r_nest, a_nest, ((i32, i32), i32));
shape!(r_inner, a_inner, ((i32,), u8));
shape!(r_np, a_np, NP);
shape!(r_opt_p, a_opt_p, Option<P>);
shape!(r_opt_char, a_opt_char, Option<char>);
shape!(r_sl, a_sl, &'static str);
shape!(r_opt_sl, a_opt_sl, Option<&'static str>);
shape!(r_ioz, a_ioz, std::io::Result<usize>);
shape!(r_iou, a_iou, std::io::Result<()>);
shape!(r_opt_str, a_opt_str, Option<String>);
shape!(r_dur, a_dur, std::time::Duration);
shape!(r_inst, a_inst, std::time::Instant);
shape!(r_res_unit, a_res_unit, Result<(), String>);
shape!(r_dynamic, a_dynamic, Result<(), Box<dyn std::error::Error>>);
shape!(r_res_u8_u8, a_res_u8_u8, Result<u8, u8>);
shape!(r_res_i32_u32, a_res_i32_u32, Result<i32, u32>);
shape!(r_opt_f64, a_opt_f64, Option<f64>);
shape!(r_ord, a_ord, std::cmp::Ordering);
shape!(r_e3, a_e3, E3);
shape!(r_f1, a_f1, F1);
shape!(r_fb, a_fb, FB);
shape!(r_f32x3, a_f32x3, [f32; 3]);
shape!(r_pf, a_pf, PF);
shape!(r_pfc, a_pfc, PFC);
shape!(r_opt_i64, a_opt_i64, Option<i64>);
shape!(r_res_i64_box, a_res_i64_box, Result<i64, Box<u8>>);
shape!(r_bigc, a_bigc, BigC);
shape!(r_ipv4, a_ipv4, std::net::Ipv4Addr);
shape!(r_ip, a_ip, std::net::IpAddr);
shape!(r_e0, a_e0, E0);
shape!(r_niche2, a_niche2, Niche2);
shape!(r_dataful, a_dataful, Dataful);
shape!(r_opt_dataful, a_opt_dataful, Option<Dataful>);
shape!(r_res_opt, a_res_opt, Result<Option<u32>, u32>);
shape!(r_opt_opt, a_opt_opt, Option<Option<u32>>);
shape!(r_opt_bool, a_opt_bool, Option<(u32, bool)>);
shape!(r_bool_or, a_bool_or, BoolOr);
shape!(r_opt_ref, a_opt_ref, Option<&'static P>);
shape!(r_fnp, a_fnp, fn(i32) -> i32);
shape!(r_rc, a_rc, std::rc::Rc<i32>);
shape!(r_cow, a_cow, std::borrow::Cow<'static, str>);
shape!(r_vec, a_vec, Vec<u8>);
shape!(r_rng, a_rng, std::ops::Range<usize>);
shape!(r_rngi, a_rngi, std::ops::RangeInclusive<u32>);
shape!(r_nz, a_nz, Option<std::num::NonZeroU32>);
shape!(r_cell, a_cell, std::cell::Cell<u32>);
shape!(r_refcell, a_refcell, std::cell::RefCell<u32>);
shape!(r_unit2, a_unit2, ((), u32));
shape!(r_ph, a_ph, Ph);
shape!(r_clike, a_clike, Clike);
shape!(r_clike2, a_clike2, (Clike, Clike));
shape!(r_neg, a_neg, Result<Clike, i8>);
shape!(r_wrap, a_wrap, Wrap);
shape!(r_poll, a_poll, std::task::Poll<Option<u32>>);
shape!(r_flow, a_flow, std::ops::ControlFlow<u32, u32>);
shape!(r_mixed4, a_mixed4, Mixed4);
shape!(r_usz, a_usz, Result<usize, std::num::ParseIntError>);
shape!(r_three, a_three, Three);
shape!(r_wide_tag, a_wide_tag, Option<[i128; 0]>);
