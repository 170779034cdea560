// Results that the compiler leaves out of optimized code, as no call uses them, and
// others beside them.
use std::hint::black_box;

#[inline(never)]
fn quiet(x: u32) -> u32 {
    println!("{}", black_box(x) + 100);
    x + 100
}

#[inline(never)]
fn fixed(x: u32) -> u32 {
    println!("{}", black_box(x));
    77
}

#[inline(never)]
fn used(x: u32) -> u32 {
    println!("{}", black_box(x));
    black_box(x) + 1
}

#[inline(never)]
fn taken(x: u32) -> u32 {
    println!("{}", black_box(x));
    black_box(x) + 2
}

fn main() {
    quiet(1);
    quiet(2);
    if fixed(3) > 70 {
        println!("more");
    }
    println!("{}", used(4));
    let f: fn(u32) -> u32 = black_box(taken);
    f(5);
}
