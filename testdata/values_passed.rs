// How Rust passes values, and what lies in them, where it can be mistaken.
use std::hint::black_box;
use std::sync::Arc;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pair {
    x: [f32; 2],
    y: f64,
}

#[derive(Clone, Copy)]
#[repr(C, u8)]
pub enum Only {
    Deep { of: Option<Result<u8, (i16, bool)>> },
}

// probe-O0: p:calls values_passed::calls a=a b=b c=c
#[inline(never)]
extern "C" fn calls(a: u8, b: [[f64; 2]; 3], c: Pair) -> Pair {
    println!("=calls {{\"a\":{},\"b\":{:?},\"c\":{{\"x\":{:?},\"y\":{:?}}}}}", a, b, c.x, c.y);
    c
}

// probe: p:plain plain a=a b=b c=c d=d
#[inline(never)]
#[no_mangle]
pub fn plain(a: [Box<bool>; 1], b: Arc<[[f32; 1]]>, c: &mut (Box<str>,), d: [String; 2]) -> usize {
    println!("=plain {{\"a\":[{}],\"b\":{:?},\"c\":{},\"d\":{:?}}}", a[0], b, c as *mut _ as usize, d);
    black_box(a.len() + b.len() + c.0.len() + d.len())
}

// probe: p:only only a=a b=b
#[inline(never)]
#[no_mangle]
pub fn only(a: &[Only], b: Vec<()>) -> usize {
    println!("=only {{\"a\":[{{\"Deep\":{{\"of\":{{\"Some\":{{\"__0\":{{\"Err\":{{\"__0\":{{\"__0\":-3,\"__1\":true}}}}}}}}}}}}}}],\"b\":[{{}},{{}}]}}");
    black_box(a);
    black_box(a.len() + b.len())
}

// Of what isn't used the compiler passes anything. Behind the registers there is one, too.
// probe: p:unused unused b=b
#[inline(never)]
#[no_mangle]
pub fn unused(a: [u64; 4], b: u8, c: u64, d: u64, e: u64, f: u64, g: [u64; 3], h: u64) -> u8 {
    println!("=unused {{\"b\":{}}}", b);
    b
}

#[repr(C)]
pub struct Two {
    x: f32,
    y: f32,
}

#[inline(never)]
#[no_mangle]
pub extern "C" fn named(x: f32) -> Two {
    Two { x, y: x + 1.0 }
}

#[inline(never)]
#[no_mangle]
pub extern "C" fn both(x: f64) -> f64 {
    x + 1.0
}

fn main() {
    black_box(named(black_box(1.5)));
    black_box(both(black_box(3.5)));
    let c = Pair { x: [1.5, 2.5], y: -3.5 };
    black_box(black_box(calls as extern "C" fn(u8, [[f64; 2]; 3], Pair) -> Pair)(7, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.25]], c));
    let mut t = (Box::from("text"),);
    black_box(plain([Box::new(true)], Arc::from(vec![[1.5], [2.5]]), &mut t, ["one".to_string(), "two".to_string()]));
    black_box(only(&[Only::Deep { of: Some(Err((-3, true))) }], vec![(), ()]));
    black_box(unused([1, 2, 3, 4], 5, 6, 7, 8, 9, [10, 11, 12], 13));
}
