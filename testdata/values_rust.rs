// Values of Rust. See values_types.c.
#![allow(dead_code)]
use std::hint::black_box;

#[derive(Clone, Copy)]
enum Shape {
    Round { r: u32 },
    Flat(u16, u16),
    None,
}

#[derive(Clone, Copy)]
struct Point {
    x: i32,
    y: i32,
}

struct Large {
    a: u64,
    b: u64,
    c: u64,
    name: &'static str,
}

fn shape(s: &Shape) -> String {
    match s {
        Shape::Round { r } => format!("{{\"Round\":{{\"r\":{}}}}}", r),
        Shape::Flat(a, b) => format!("{{\"Flat\":{{\"__0\":{},\"__1\":{}}}}}", a, b),
        Shape::None => "{\"None\":{}}".to_string(),
    }
}

// probe-O0: p:plain values_rust::plain a b c
#[inline(never)]
fn plain(a: i32, b: u8, c: bool) -> i32 {
    println!("=plain {{\"a\":{},\"b\":{},\"c\":{}}}", a, b, c);
    a + b as i32 + c as i32
}

// probe: p:texts values_rust::texts s t=*t
#[inline(never)]
fn texts(s: &str, t: &String) -> usize {
    println!("=texts {{\"s\":{:?},\"t\":{:?}}}", s, t);
    s.len() + t.len()
}

// probe: p:slices values_rust::slices n=s.length first=s[0] second=s[1] last
#[inline(never)]
fn slices(s: &[u16], last: i8) -> usize {
    println!("=slices {{\"n\":{},\"first\":{},\"second\":{},\"last\":{}}}", s.len(), s[0], s[1], last);
    s.len()
}

// probe: p:shapes values_rust::shapes s=*s
#[inline(never)]
fn shapes(s: &Shape) -> u32 {
    println!("=shapes {{\"s\":{}}}", shape(s));
    match s {
        Shape::Round { r } => *r,
        Shape::Flat(a, _) => *a as u32,
        Shape::None => 0,
    }
}

// probe-O0: r:maybe values_rust::maybe r=$retval n
#[inline(never)]
fn maybe(n: u64) -> Option<u64> {
    let r = if n > 2 { Some(n * 3) } else { None };
    match r {
        Some(v) => println!("=maybe {{\"r\":{{\"Some\":{{\"__0\":{}}}}},\"n\":{}}}", v, n),
        None => println!("=maybe {{\"r\":{{\"None\":{{}}}},\"n\":{}}}", n),
    }
    r
}

// probe-O0: r:result values_rust::result r=$retval n
#[inline(never)]
fn result(n: u32) -> Result<u32, u32> {
    let r = if n > 2 { Ok(n * 3) } else { Err(n) };
    match r {
        Ok(v) => println!("=result {{\"r\":{{\"Ok\":{{\"__0\":{}}}}},\"n\":{}}}", v, n),
        Err(v) => println!("=result {{\"r\":{{\"Err\":{{\"__0\":{}}}}},\"n\":{}}}", v, n),
    }
    r
}

// probe-O0: r:pair values_rust::pair r=$retval n
#[inline(never)]
fn pair(n: u64) -> (u64, u64) {
    println!("=pair {{\"r\":{{\"__0\":{},\"__1\":{}}},\"n\":{}}}", n, n + 1, n);
    (n, n + 1)
}

// probe: p:point values_rust::point x=p.x y=p.y n
#[inline(never)]
fn point(p: Point, n: i64) -> i64 {
    println!("=point {{\"x\":{},\"y\":{},\"n\":{}}}", p.x, p.y, n);
    p.x as i64 + p.y as i64 + n
}

// probe: p:large values_rust::large a=l.a c=l.c name=l.name n
#[inline(never)]
fn large(l: Large, n: i64) -> i64 {
    println!("=large {{\"a\":{},\"c\":{},\"name\":{:?},\"n\":{}}}", l.a, l.c, l.name, n);
    l.a as i64 + n
}

// probe: p:wide values_rust::wide a b n
#[inline(never)]
fn wide(a: i128, b: u128, n: i32) -> i128 {
    println!("=wide {{\"a\":{},\"b\":\"{}\",\"n\":{}}}", a, b, n);
    a + n as i128
}

fn call<F: FnMut(i32, u64) -> u64>(mut f: F, n: i32) -> u64 {
    f(black_box(n), black_box(n as u64 * 7))
}

#[inline(never)]
fn closures(base: u64) -> u64 {
    let mut sum = 0u64;
    let named = String::from("kept");
    let mut total = call(
        // probe: p:closure values_rust::closures::{closure#0} a b
        #[inline(never)]
        |a: i32, b: u64| -> u64 {
            println!("=closure {{\"a\":{},\"b\":{}}}", a, b);
            sum += base;
            b + a as u64
        },
        5,
    );
    total += call(
        // probe: p:moving values_rust::closures::{closure#1} a b
        #[inline(never)]
        move |a: i32, b: u64| -> u64 {
            println!("=moving {{\"a\":{},\"b\":{}}}", a, b);
            b + a as u64 + named.len() as u64
        },
        6,
    );
    total += call(
        // probe: p:bare values_rust::closures::{closure#2} a b
        #[inline(never)]
        |a: i32, b: u64| -> u64 {
            println!("=bare {{\"a\":{},\"b\":{}}}", a, b);
            b + a as u64
        },
        7,
    );
    total + sum
}

// What is in a variant is nothing while another one is there.
// probe-O0: p:variants values_rust::variants a=x.Some.__0 t=y.Some.__0 r=s.Round.r f=s.Flat.__1
#[inline(never)]
fn variants(x: &Option<u32>, y: &Option<String>, s: &Shape) -> usize {
    let a = x.map_or("null".to_string(), |n| n.to_string());
    let t = y.as_ref().map_or("null".to_string(), |t| format!("{:?}", t));
    let (r, f) = match s {
        Shape::Round { r } => (r.to_string(), "null".to_string()),
        Shape::Flat(_, b) => ("null".to_string(), b.to_string()),
        Shape::None => ("null".to_string(), "null".to_string()),
    };
    println!("=variants {{\"a\":{},\"t\":{},\"r\":{},\"f\":{}}}", a, t, r, f);
    a.len()
}

// probe: r:found values_rust::found p=$retval.Some.__0
#[inline(never)]
fn found(list: &'static [u32; 4], n: usize) -> Option<&'static u32> {
    println!("=found {{\"p\":{}}}", list.get(n).map_or("null".to_string(), |p| (p as *const u32 as usize).to_string()));
    list.get(n)
}

fn main() {
    let mut n = plain(black_box(-1), black_box(200), true) as u64;
    n += variants(&black_box(None), &black_box(None), &black_box(Shape::None)) as u64;
    n += variants(&black_box(Some(3)), &black_box(None), &black_box(Shape::Round { r: 9 })) as u64;
    n += variants(&black_box(None), &black_box(Some("t".to_string())), &black_box(Shape::Flat(5, 6))) as u64;
    n += found(&[1, 2, 3, 4], black_box(2)).map_or(0, |p| *p as u64) + found(&[1, 2, 3, 4], black_box(4)).map_or(0, |p| *p as u64);
    n = n.wrapping_add(texts(black_box("borrowed"), &black_box("owned".to_string())) as u64);
    n = n.wrapping_add(slices(black_box(&[1, 2, 3]), black_box(-4)) as u64);
    n = n.wrapping_add((shapes(&black_box(Shape::Round { r: 9 })) + shapes(&black_box(Shape::Flat(3, 4))) + shapes(&black_box(Shape::None))) as u64);
    n = n.wrapping_add(maybe(black_box(1)).unwrap_or(0) + maybe(black_box(5)).unwrap_or(0));
    n = n.wrapping_add((result(black_box(1)).unwrap_or(0) + result(black_box(5)).unwrap_or(0)) as u64);
    n = n.wrapping_add(pair(black_box(8)).1);
    n = n.wrapping_add(point(black_box(Point { x: -5, y: 6 }), black_box(-7)) as u64);
    n = n.wrapping_add(large(black_box(Large { a: 1, b: 2, c: 3, name: "large" }), black_box(8)) as u64);
    n = n.wrapping_add(wide(black_box(-9), black_box(1 << 100), black_box(3)) as u64);
    n = n.wrapping_add(closures(black_box(1)));
    std::process::exit((n == 0) as i32);
}
