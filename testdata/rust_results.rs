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

#[derive(Debug)]
struct Big {
    a: u64,
    b: u64,
    c: u64,
}

#[inline(never)]
fn behind(x: &mut u64) -> u64 {
    unsafe { std::ptr::write_volatile(x, *x + 1) };
    *x
}

// With one variable, which has one place everywhere, and nothing inlined.
#[inline(never)]
fn simple(mut x: u64) -> Big {
    Big { a: behind(&mut x), b: 7, c: x }
}

#[inline(never)]
fn ignored(mut x: u64) -> u64 {
    behind(&mut x) + 5
}

// Whose address another function is given.
#[inline(never)]
fn passed() -> Big {
    let big = simple(20);
    println!("passed");
    big
}

#[inline(never)]
fn onward(x: u64) -> Big {
    simple(x + 1)
}

#[inline(never)]
fn text(x: u64) -> String {
    format!("text{x}")
}

fn main() {
    ignored(30);
    println!("{:?} {:?} {:?} {}", simple(10), passed(), onward(40), text(50));
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
