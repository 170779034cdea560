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

#[no_mangle]
pub fn r_res_i32_u8(f: fn() -> Result<i32, u8>) -> Result<i32, u8> { f() }
#[no_mangle]
pub fn a_res_i32_u8(x: Result<i32, u8>, f: fn(Result<i32, u8>)) { f(x) }

#[no_mangle]
pub fn r_res_u32_f32(f: fn() -> Result<u32, f32>) -> Result<u32, f32> { f() }
#[no_mangle]
pub fn a_res_u32_f32(x: Result<u32, f32>, f: fn(Result<u32, f32>)) { f(x) }

#[no_mangle]
pub fn r_res_us_box(f: fn() -> Result<usize, Box<i32>>) -> Result<usize, Box<i32>> { f() }
#[no_mangle]
pub fn a_res_us_box(x: Result<usize, Box<i32>>, f: fn(Result<usize, Box<i32>>)) { f(x) }

#[no_mangle]
pub fn r_res_u64_f64(f: fn() -> Result<u64, f64>) -> Result<u64, f64> { f() }
#[no_mangle]
pub fn a_res_u64_f64(x: Result<u64, f64>, f: fn(Result<u64, f64>)) { f(x) }

#[no_mangle]
pub fn r_opt_box(f: fn() -> Option<Box<i32>>) -> Option<Box<i32>> { f() }
#[no_mangle]
pub fn a_opt_box(x: Option<Box<i32>>, f: fn(Option<Box<i32>>)) { f(x) }

#[no_mangle]
pub fn r_t_i32_u8(f: fn() -> (i32, u8)) -> (i32, u8) { f() }
#[no_mangle]
pub fn a_t_i32_u8(x: (i32, u8), f: fn((i32, u8))) { f(x) }

#[no_mangle]
pub fn r_p(f: fn() -> P) -> P { f() }
#[no_mangle]
pub fn a_p(x: P, f: fn(P)) { f(x) }

#[no_mangle]
pub fn r_pc(f: fn() -> PC) -> PC { f() }
#[no_mangle]
pub fn a_pc(x: PC, f: fn(PC)) { f(x) }

#[no_mangle]
pub fn r_q(f: fn() -> Q) -> Q { f() }
#[no_mangle]
pub fn a_q(x: Q, f: fn(Q)) { f(x) }

#[no_mangle]
pub fn r_qc(f: fn() -> QC) -> QC { f() }
#[no_mangle]
pub fn a_qc(x: QC, f: fn(QC)) { f(x) }

#[no_mangle]
pub fn r_packed(f: fn() -> Packed) -> Packed { f() }
#[no_mangle]
pub fn a_packed(x: Packed, f: fn(Packed)) { f(x) }

#[no_mangle]
pub fn r_aligned(f: fn() -> Aligned) -> Aligned { f() }
#[no_mangle]
pub fn a_aligned(x: Aligned, f: fn(Aligned)) { f(x) }

#[no_mangle]
pub fn r_wide_aligned(f: fn() -> WideAligned) -> WideAligned { f() }
#[no_mangle]
pub fn a_wide_aligned(x: WideAligned, f: fn(WideAligned)) { f(x) }

#[no_mangle]
pub fn r_a3(f: fn() -> [u8; 3]) -> [u8; 3] { f() }
#[no_mangle]
pub fn a_a3(x: [u8; 3], f: fn([u8; 3])) { f(x) }

#[no_mangle]
pub fn r_a8(f: fn() -> [u8; 8]) -> [u8; 8] { f() }
#[no_mangle]
pub fn a_a8(x: [u8; 8], f: fn([u8; 8])) { f(x) }

#[no_mangle]
pub fn r_a9(f: fn() -> [u8; 9]) -> [u8; 9] { f() }
#[no_mangle]
pub fn a_a9(x: [u8; 9], f: fn([u8; 9])) { f(x) }

#[no_mangle]
pub fn r_a16(f: fn() -> [u8; 16]) -> [u8; 16] { f() }
#[no_mangle]
pub fn a_a16(x: [u8; 16], f: fn([u8; 16])) { f(x) }

#[no_mangle]
pub fn r_a17(f: fn() -> [u8; 17]) -> [u8; 17] { f() }
#[no_mangle]
pub fn a_a17(x: [u8; 17], f: fn([u8; 17])) { f(x) }

#[no_mangle]
pub fn r_u64x2(f: fn() -> [u64; 2]) -> [u64; 2] { f() }
#[no_mangle]
pub fn a_u64x2(x: [u64; 2], f: fn([u64; 2])) { f(x) }

#[no_mangle]
pub fn r_u64x1(f: fn() -> [u64; 1]) -> [u64; 1] { f() }
#[no_mangle]
pub fn a_u64x1(x: [u64; 1], f: fn([u64; 1])) { f(x) }

#[no_mangle]
pub fn r_text(f: fn() -> String) -> String { f() }
#[no_mangle]
pub fn a_text(x: String, f: fn(String)) { f(x) }

#[no_mangle]
pub fn r_t3(f: fn() -> (u8, u8, u8)) -> (u8, u8, u8) { f() }
#[no_mangle]
pub fn a_t3(x: (u8, u8, u8), f: fn((u8, u8, u8))) { f(x) }

#[no_mangle]
pub fn r_s12(f: fn() -> S12) -> S12 { f() }
#[no_mangle]
pub fn a_s12(x: S12, f: fn(S12)) { f(x) }

#[no_mangle]
pub fn r_e(f: fn() -> E) -> E { f() }
#[no_mangle]
pub fn a_e(x: E, f: fn(E)) { f(x) }

#[no_mangle]
pub fn r_f2(f: fn() -> (f64, f64)) -> (f64, f64) { f() }
#[no_mangle]
pub fn a_f2(x: (f64, f64), f: fn((f64, f64))) { f(x) }

#[no_mangle]
pub fn r_ff2(f: fn() -> (f32, f32)) -> (f32, f32) { f() }
#[no_mangle]
pub fn a_ff2(x: (f32, f32), f: fn((f32, f32))) { f(x) }

#[no_mangle]
pub fn r_fc2(f: fn() -> FC2) -> FC2 { f() }
#[no_mangle]
pub fn a_fc2(x: FC2, f: fn(FC2)) { f(x) }

#[no_mangle]
pub fn r_f4(f: fn() -> F4) -> F4 { f() }
#[no_mangle]
pub fn a_f4(x: F4, f: fn(F4)) { f(x) }

#[no_mangle]
pub fn r_fa(f: fn() -> FA) -> FA { f() }
#[no_mangle]
pub fn a_fa(x: FA, f: fn(FA)) { f(x) }

#[no_mangle]
pub fn r_opt_pair(f: fn() -> Option<(i32, i32)>) -> Option<(i32, i32)> { f() }
#[no_mangle]
pub fn a_opt_pair(x: Option<(i32, i32)>, f: fn(Option<(i32, i32)>)) { f(x) }

#[no_mangle]
pub fn r_opt_a8(f: fn() -> Option<[u8; 8]>) -> Option<[u8; 8]> { f() }
#[no_mangle]
pub fn a_opt_a8(x: Option<[u8; 8]>, f: fn(Option<[u8; 8]>)) { f(x) }

#[no_mangle]
pub fn r_nest(f: fn() -> ((i32, i32), i32)) -> ((i32, i32), i32) { f() }
#[no_mangle]
pub fn a_nest(x: ((i32, i32), i32), f: fn(((i32, i32), i32))) { f(x) }

#[no_mangle]
pub fn r_inner(f: fn() -> ((i32,), u8)) -> ((i32,), u8) { f() }
#[no_mangle]
pub fn a_inner(x: ((i32,), u8), f: fn(((i32,), u8))) { f(x) }

#[no_mangle]
pub fn r_np(f: fn() -> NP) -> NP { f() }
#[no_mangle]
pub fn a_np(x: NP, f: fn(NP)) { f(x) }

#[no_mangle]
pub fn r_opt_p(f: fn() -> Option<P>) -> Option<P> { f() }
#[no_mangle]
pub fn a_opt_p(x: Option<P>, f: fn(Option<P>)) { f(x) }

#[no_mangle]
pub fn r_opt_char(f: fn() -> Option<char>) -> Option<char> { f() }
#[no_mangle]
pub fn a_opt_char(x: Option<char>, f: fn(Option<char>)) { f(x) }

#[no_mangle]
pub fn r_sl(f: fn() -> &'static str) -> &'static str { f() }
#[no_mangle]
pub fn a_sl(x: &'static str, f: fn(&'static str)) { f(x) }

#[no_mangle]
pub fn r_opt_sl(f: fn() -> Option<&'static str>) -> Option<&'static str> { f() }
#[no_mangle]
pub fn a_opt_sl(x: Option<&'static str>, f: fn(Option<&'static str>)) { f(x) }

#[no_mangle]
pub fn r_ioz(f: fn() -> std::io::Result<usize>) -> std::io::Result<usize> { f() }
#[no_mangle]
pub fn a_ioz(x: std::io::Result<usize>, f: fn(std::io::Result<usize>)) { f(x) }

#[no_mangle]
pub fn r_iou(f: fn() -> std::io::Result<()>) -> std::io::Result<()> { f() }
#[no_mangle]
pub fn a_iou(x: std::io::Result<()>, f: fn(std::io::Result<()>)) { f(x) }

#[no_mangle]
pub fn r_opt_str(f: fn() -> Option<String>) -> Option<String> { f() }
#[no_mangle]
pub fn a_opt_str(x: Option<String>, f: fn(Option<String>)) { f(x) }

#[no_mangle]
pub fn r_dur(f: fn() -> std::time::Duration) -> std::time::Duration { f() }
#[no_mangle]
pub fn a_dur(x: std::time::Duration, f: fn(std::time::Duration)) { f(x) }

#[no_mangle]
pub fn r_inst(f: fn() -> std::time::Instant) -> std::time::Instant { f() }
#[no_mangle]
pub fn a_inst(x: std::time::Instant, f: fn(std::time::Instant)) { f(x) }

#[no_mangle]
pub fn r_res_unit(f: fn() -> Result<(), String>) -> Result<(), String> { f() }
#[no_mangle]
pub fn a_res_unit(x: Result<(), String>, f: fn(Result<(), String>)) { f(x) }

#[no_mangle]
pub fn r_dynamic(f: fn() -> Result<(), Box<dyn std::error::Error>>) -> Result<(), Box<dyn std::error::Error>> { f() }
#[no_mangle]
pub fn a_dynamic(x: Result<(), Box<dyn std::error::Error>>, f: fn(Result<(), Box<dyn std::error::Error>>)) { f(x) }

#[no_mangle]
pub fn r_res_u8_u8(f: fn() -> Result<u8, u8>) -> Result<u8, u8> { f() }
#[no_mangle]
pub fn a_res_u8_u8(x: Result<u8, u8>, f: fn(Result<u8, u8>)) { f(x) }

#[no_mangle]
pub fn r_res_i32_u32(f: fn() -> Result<i32, u32>) -> Result<i32, u32> { f() }
#[no_mangle]
pub fn a_res_i32_u32(x: Result<i32, u32>, f: fn(Result<i32, u32>)) { f(x) }

#[no_mangle]
pub fn r_opt_f64(f: fn() -> Option<f64>) -> Option<f64> { f() }
#[no_mangle]
pub fn a_opt_f64(x: Option<f64>, f: fn(Option<f64>)) { f(x) }

#[no_mangle]
pub fn r_ord(f: fn() -> std::cmp::Ordering) -> std::cmp::Ordering { f() }
#[no_mangle]
pub fn a_ord(x: std::cmp::Ordering, f: fn(std::cmp::Ordering)) { f(x) }

#[no_mangle]
pub fn r_e3(f: fn() -> E3) -> E3 { f() }
#[no_mangle]
pub fn a_e3(x: E3, f: fn(E3)) { f(x) }

#[no_mangle]
pub fn r_f1(f: fn() -> F1) -> F1 { f() }
#[no_mangle]
pub fn a_f1(x: F1, f: fn(F1)) { f(x) }

#[no_mangle]
pub fn r_fb(f: fn() -> FB) -> FB { f() }
#[no_mangle]
pub fn a_fb(x: FB, f: fn(FB)) { f(x) }

#[no_mangle]
pub fn r_f32x3(f: fn() -> [f32; 3]) -> [f32; 3] { f() }
#[no_mangle]
pub fn a_f32x3(x: [f32; 3], f: fn([f32; 3])) { f(x) }

#[no_mangle]
pub fn r_pf(f: fn() -> PF) -> PF { f() }
#[no_mangle]
pub fn a_pf(x: PF, f: fn(PF)) { f(x) }

#[no_mangle]
pub fn r_pfc(f: fn() -> PFC) -> PFC { f() }
#[no_mangle]
pub fn a_pfc(x: PFC, f: fn(PFC)) { f(x) }

#[no_mangle]
pub fn r_opt_i64(f: fn() -> Option<i64>) -> Option<i64> { f() }
#[no_mangle]
pub fn a_opt_i64(x: Option<i64>, f: fn(Option<i64>)) { f(x) }

#[no_mangle]
pub fn r_res_i64_box(f: fn() -> Result<i64, Box<u8>>) -> Result<i64, Box<u8>> { f() }
#[no_mangle]
pub fn a_res_i64_box(x: Result<i64, Box<u8>>, f: fn(Result<i64, Box<u8>>)) { f(x) }

#[no_mangle]
pub fn r_bigc(f: fn() -> BigC) -> BigC { f() }
#[no_mangle]
pub fn a_bigc(x: BigC, f: fn(BigC)) { f(x) }

#[no_mangle]
pub fn r_ipv4(f: fn() -> std::net::Ipv4Addr) -> std::net::Ipv4Addr { f() }
#[no_mangle]
pub fn a_ipv4(x: std::net::Ipv4Addr, f: fn(std::net::Ipv4Addr)) { f(x) }

#[no_mangle]
pub fn r_ip(f: fn() -> std::net::IpAddr) -> std::net::IpAddr { f() }
#[no_mangle]
pub fn a_ip(x: std::net::IpAddr, f: fn(std::net::IpAddr)) { f(x) }

#[no_mangle]
pub fn r_e0(f: fn() -> E0) -> E0 { f() }
#[no_mangle]
pub fn a_e0(x: E0, f: fn(E0)) { f(x) }

#[no_mangle]
pub fn r_niche2(f: fn() -> Niche2) -> Niche2 { f() }
#[no_mangle]
pub fn a_niche2(x: Niche2, f: fn(Niche2)) { f(x) }

#[no_mangle]
pub fn r_dataful(f: fn() -> Dataful) -> Dataful { f() }
#[no_mangle]
pub fn a_dataful(x: Dataful, f: fn(Dataful)) { f(x) }

#[no_mangle]
pub fn r_opt_dataful(f: fn() -> Option<Dataful>) -> Option<Dataful> { f() }
#[no_mangle]
pub fn a_opt_dataful(x: Option<Dataful>, f: fn(Option<Dataful>)) { f(x) }

#[no_mangle]
pub fn r_res_opt(f: fn() -> Result<Option<u32>, u32>) -> Result<Option<u32>, u32> { f() }
#[no_mangle]
pub fn a_res_opt(x: Result<Option<u32>, u32>, f: fn(Result<Option<u32>, u32>)) { f(x) }

#[no_mangle]
pub fn r_opt_opt(f: fn() -> Option<Option<u32>>) -> Option<Option<u32>> { f() }
#[no_mangle]
pub fn a_opt_opt(x: Option<Option<u32>>, f: fn(Option<Option<u32>>)) { f(x) }

#[no_mangle]
pub fn r_opt_bool(f: fn() -> Option<(u32, bool)>) -> Option<(u32, bool)> { f() }
#[no_mangle]
pub fn a_opt_bool(x: Option<(u32, bool)>, f: fn(Option<(u32, bool)>)) { f(x) }

#[no_mangle]
pub fn r_bool_or(f: fn() -> BoolOr) -> BoolOr { f() }
#[no_mangle]
pub fn a_bool_or(x: BoolOr, f: fn(BoolOr)) { f(x) }

#[no_mangle]
pub fn r_opt_ref(f: fn() -> Option<&'static P>) -> Option<&'static P> { f() }
#[no_mangle]
pub fn a_opt_ref(x: Option<&'static P>, f: fn(Option<&'static P>)) { f(x) }

#[no_mangle]
pub fn r_fnp(f: fn() -> fn(i32) -> i32) -> fn(i32) -> i32 { f() }
#[no_mangle]
pub fn a_fnp(x: fn(i32) -> i32, f: fn(fn(i32) -> i32)) { f(x) }

#[no_mangle]
pub fn r_rc(f: fn() -> std::rc::Rc<i32>) -> std::rc::Rc<i32> { f() }
#[no_mangle]
pub fn a_rc(x: std::rc::Rc<i32>, f: fn(std::rc::Rc<i32>)) { f(x) }

#[no_mangle]
pub fn r_cow(f: fn() -> std::borrow::Cow<'static, str>) -> std::borrow::Cow<'static, str> { f() }
#[no_mangle]
pub fn a_cow(x: std::borrow::Cow<'static, str>, f: fn(std::borrow::Cow<'static, str>)) { f(x) }

#[no_mangle]
pub fn r_vec(f: fn() -> Vec<u8>) -> Vec<u8> { f() }
#[no_mangle]
pub fn a_vec(x: Vec<u8>, f: fn(Vec<u8>)) { f(x) }

#[no_mangle]
pub fn r_rng(f: fn() -> std::ops::Range<usize>) -> std::ops::Range<usize> { f() }
#[no_mangle]
pub fn a_rng(x: std::ops::Range<usize>, f: fn(std::ops::Range<usize>)) { f(x) }

#[no_mangle]
pub fn r_rngi(f: fn() -> std::ops::RangeInclusive<u32>) -> std::ops::RangeInclusive<u32> { f() }
#[no_mangle]
pub fn a_rngi(x: std::ops::RangeInclusive<u32>, f: fn(std::ops::RangeInclusive<u32>)) { f(x) }

#[no_mangle]
pub fn r_nz(f: fn() -> Option<std::num::NonZeroU32>) -> Option<std::num::NonZeroU32> { f() }
#[no_mangle]
pub fn a_nz(x: Option<std::num::NonZeroU32>, f: fn(Option<std::num::NonZeroU32>)) { f(x) }

#[no_mangle]
pub fn r_cell(f: fn() -> std::cell::Cell<u32>) -> std::cell::Cell<u32> { f() }
#[no_mangle]
pub fn a_cell(x: std::cell::Cell<u32>, f: fn(std::cell::Cell<u32>)) { f(x) }

#[no_mangle]
pub fn r_refcell(f: fn() -> std::cell::RefCell<u32>) -> std::cell::RefCell<u32> { f() }
#[no_mangle]
pub fn a_refcell(x: std::cell::RefCell<u32>, f: fn(std::cell::RefCell<u32>)) { f(x) }

#[no_mangle]
pub fn r_unit2(f: fn() -> ((), u32)) -> ((), u32) { f() }
#[no_mangle]
pub fn a_unit2(x: ((), u32), f: fn(((), u32))) { f(x) }

#[no_mangle]
pub fn r_ph(f: fn() -> Ph) -> Ph { f() }
#[no_mangle]
pub fn a_ph(x: Ph, f: fn(Ph)) { f(x) }

#[no_mangle]
pub fn r_clike(f: fn() -> Clike) -> Clike { f() }
#[no_mangle]
pub fn a_clike(x: Clike, f: fn(Clike)) { f(x) }

#[no_mangle]
pub fn r_clike2(f: fn() -> (Clike, Clike)) -> (Clike, Clike) { f() }
#[no_mangle]
pub fn a_clike2(x: (Clike, Clike), f: fn((Clike, Clike))) { f(x) }

#[no_mangle]
pub fn r_neg(f: fn() -> Result<Clike, i8>) -> Result<Clike, i8> { f() }
#[no_mangle]
pub fn a_neg(x: Result<Clike, i8>, f: fn(Result<Clike, i8>)) { f(x) }

#[no_mangle]
pub fn r_wrap(f: fn() -> Wrap) -> Wrap { f() }
#[no_mangle]
pub fn a_wrap(x: Wrap, f: fn(Wrap)) { f(x) }

#[no_mangle]
pub fn r_poll(f: fn() -> std::task::Poll<Option<u32>>) -> std::task::Poll<Option<u32>> { f() }
#[no_mangle]
pub fn a_poll(x: std::task::Poll<Option<u32>>, f: fn(std::task::Poll<Option<u32>>)) { f(x) }

#[no_mangle]
pub fn r_flow(f: fn() -> std::ops::ControlFlow<u32, u32>) -> std::ops::ControlFlow<u32, u32> { f() }
#[no_mangle]
pub fn a_flow(x: std::ops::ControlFlow<u32, u32>, f: fn(std::ops::ControlFlow<u32, u32>)) { f(x) }

#[no_mangle]
pub fn r_mixed4(f: fn() -> Mixed4) -> Mixed4 { f() }
#[no_mangle]
pub fn a_mixed4(x: Mixed4, f: fn(Mixed4)) { f(x) }

#[no_mangle]
pub fn r_usz(f: fn() -> Result<usize, std::num::ParseIntError>) -> Result<usize, std::num::ParseIntError> { f() }
#[no_mangle]
pub fn a_usz(x: Result<usize, std::num::ParseIntError>, f: fn(Result<usize, std::num::ParseIntError>)) { f(x) }

#[no_mangle]
pub fn r_three(f: fn() -> Three) -> Three { f() }
#[no_mangle]
pub fn a_three(x: Three, f: fn(Three)) { f(x) }
