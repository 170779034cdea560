// Values of Rust that pointers with a length lead to. See values_types.c.
#![allow(dead_code)]
use std::ffi::{CStr, CString, OsStr};
use std::hint::black_box;
use std::mem::transmute;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

mod strings {
    #[repr(C)]
    pub struct Tail {
        pub n: u32,
        pub rest: [u8],
    }
    pub struct Only(pub [u16]);
}
use strings::*;

// Structures that end in a slice are no slices and no texts, whatever their modules are called.
// probe: p:tails tails n=a.data_ptr->n length=a.length m=b.length a b
#[inline(never)]
#[no_mangle]
pub fn tails(a: &Tail, b: &Only) -> usize {
    let (x, y) = (a as *const Tail as *const u8 as usize, b as *const Only as *const u8 as usize);
    println!("=tails {{\"n\":{},\"length\":{},\"m\":{},\"a\":{{\"data_ptr\":{},\"length\":{}}},\"b\":{{\"data_ptr\":{},\"length\":{}}}}}", a.n, a.rest.len(), b.0.len(), x, a.rest.len(), y, b.0.len());
    a.rest.len()
}

// probe: p:paths paths a b c d
// probe-O0: p:owned paths e f g
#[inline(never)]
#[no_mangle]
pub fn paths(a: &Path, b: &OsStr, c: &str, d: &[&str], e: Box<Path>, f: Rc<Path>, g: Arc<OsStr>) -> usize {
    println!("=paths {{\"a\":{:?},\"b\":{:?},\"c\":{:?},\"d\":{:?}}}", a, b, c, d);
    println!("=owned {{\"e\":{:?},\"f\":{:?},\"g\":{:?}}}", e, f, g);
    d.len()
}

// C's texts, without the zero at their ends.
// probe: p:ctexts ctexts a b d e
// probe-O0: p:cowned ctexts c
#[inline(never)]
#[no_mangle]
pub fn ctexts(a: &CStr, b: &CString, c: CString, d: &Vec<CString>, e: &Option<CString>) -> usize {
    println!("=ctexts {{\"a\":{:?},\"b\":{:?},\"d\":{:?},\"e\":{{\"Some\":{{\"__0\":{:?}}}}}}}", a, b, d, e.as_ref().map(|s| s.to_str().unwrap()).unwrap());
    println!("=cowned {{\"c\":{:?}}}", c);
    d.len()
}

fn c_text(text: &[u8]) -> &CStr {
    CStr::from_bytes_with_nul(black_box(text)).unwrap()
}

fn main() {
    let (long, none) = (CString::new("a longer one, owned").unwrap(), CString::new("").unwrap());
    ctexts(c_text(b"borrowed\0"), &long, CString::new("own").unwrap(), &vec![long.clone(), none.clone()], &Some(long.clone()));
    ctexts(c_text(b"\0"), &none, none.clone(), &vec![], &Some(none.clone()));
    let raw: [u32; 2] = black_box([7, 0x64636261]);
    let a: &Tail = unsafe { transmute(std::ptr::slice_from_raw_parts(raw.as_ptr() as *const u8, 4)) };
    let b: &Only = unsafe { transmute(&[1u16, 2, 3][..]) };
    let n = tails(a, b);
    let m = paths(Path::new("/a/b"), OsStr::new("os"), "text", &["x", ""], Path::new("boxed").into(), Path::new("rc").into(), OsStr::new("arc").into());
    std::process::exit((n + m == 0) as i32);
}
