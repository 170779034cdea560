// Functions of one code, which LLVM makes one: their names lie at one address.
use std::hint::black_box;

#[no_mangle]
#[inline(never)]
pub fn merged_signed(x: i8) { black_box(&x); }

#[no_mangle]
#[inline(never)]
pub fn merged_unsigned(x: u8) { black_box(&x); }

#[no_mangle]
#[inline(never)]
pub fn alone(x: u8) { black_box(&x); black_box(7); }

fn main() {
    for i in 0..3u8 {
        merged_signed(black_box(i as i8));
        merged_unsigned(black_box(200 + i));
        alone(black_box(i));
    }
}
