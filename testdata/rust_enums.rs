// Rust's enums whose discriminant has 128 bits, and its texts of the system. Each value
// is told by the program itself, in kprobe's words, just before.
use std::ffi::OsString;
use std::hint::black_box;
use std::path::PathBuf;

pub enum Wide {
    Number(i128),
    Other,
}

#[no_mangle]
#[inline(never)]
pub fn number(x: &Wide) { black_box(x); }

#[no_mangle]
#[inline(never)]
pub fn option(x: &Option<u128>) { black_box((x, 1)); }

#[no_mangle]
#[inline(never)]
pub fn path(x: PathBuf, y: OsString, z: Option<PathBuf>) { black_box((&x, &y, &z)); }

pub struct Held(String, i32);

#[no_mangle]
#[inline(never)]
pub fn given(b: Box<i32>, h: Held, o: Option<Box<i32>>, s: &str, n: Option<i32>) -> i32 { black_box((&b, &h, &o, s, n)); h.1 }

pub struct Kept {
    value: Option<i32>,
}

#[inline(never)]
#[no_mangle]
fn kept(x: Kept) {
    std::hint::black_box(&x.value);
}

fn main() {
    kept(Kept { value: None });
    kept(Kept { value: Some(5) });
    for i in 0..3 {
        println!("number x={}", if i == 1 { "{Other}".to_string() } else { format!("{{Number={{__0={}}}}}", i as i128 - 1) });
        number(&if i == 1 { Wide::Other } else { Wide::Number(i as i128 - 1) });
        println!("option x={}", if i == 2 { "{None}".to_string() } else { format!("{{Some={{__0={}}}}}", u128::MAX - i) });
        option(&if i == 2 { None } else { Some(u128::MAX - i) });
        println!("path x=\"/tmp/{}\" y=\"os{}\" z={{Some={{__0=\"in{}\"}}}}", i, i, i);
        black_box(given(Box::new(i as i32), Held("h".to_string(), 7), Some(Box::new(2)), "borrowed", Some(i as i32)));
        path(PathBuf::from(format!("/tmp/{}", i)), OsString::from(format!("os{}", i)), Some(PathBuf::from(format!("in{}", i))));
    }
}
