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

#[inline(never)]
fn pair(x: u32) -> (u64, u64) {
    println!("{}", black_box(x));
    (black_box(x) as u64 + 3, black_box(x) as u64 + 4)
}

// Of which one number is used.
#[inline(never)]
fn half(x: u32) -> (u64, u64) {
    println!("{}", black_box(x));
    (black_box(x) as u64 + 3, black_box(x) as u64 + 4)
}

#[inline(always)]
fn thrice(x: u32) -> u32 {
    x * black_box(3)
}

// Without parameters, and with what is inlined in any build.
#[inline(never)]
fn maybe() -> Option<u32> {
    println!("maybe");
    Some(thrice(black_box(5)))
}

#[inline(never)]
fn wide(x: u32) -> i128 {
    println!("{}", black_box(x));
    black_box(x as i128) << 70
}

#[inline(never)]
fn large(x: u32) -> [u64; 3] {
    println!("{}", black_box(x));
    [black_box(x) as u64; 3]
}

fn main() {
    let (a, b) = pair(6);
    println!("{a} {b}");
    let (_, last) = half(7);
    println!("{last}");
    println!("{:?} {} {:?}", maybe(), wide(1), large(8));
    quiet(1);
    quiet(2);
    if fixed(3) > 70 {
        println!("more");
    }
    println!("{}", used(4));
    let f: fn(u32) -> u32 = black_box(taken);
    f(5);
}
