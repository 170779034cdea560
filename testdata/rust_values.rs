// Rust's values as parameters and results: enumerations with and without
// niches, tuples, slices, boxes, what is passed by its address.
use std::hint::black_box;

#[derive(Clone)]
pub enum Shape {
    Circle(f64),
    Rect { w: i32, h: i32 },
    Named(String),
    Empty,
}

pub struct Node {
    val: u32,
    next: Option<Box<Node>>,
    tag: Option<u8>,
}

#[derive(Clone, Copy)]
pub enum Kind {
    Alpha = 3,
    Beta = 7,
}

pub struct Wide {
    a: u64,
    b: u64,
    c: u64,
}

#[inline(never)]
fn take(name: &str, v: Vec<i32>, o: Option<Box<Node>>, k: Kind, t: (u8, i64), c: char) -> Option<u32> {
    let sum = v.iter().sum::<i32>() as u32 + o.as_ref().map_or(0, |n| n.val) + k as u32;
    if name.len() > 5 { None } else { Some(black_box(sum + t.0 as u32 + t.1.unsigned_abs() as u32 + c as u32)) }
}

#[inline(never)]
fn wide(w: Wide, s: Shape, x: f32, list: &[u16], d: u8) -> Wide {
    let n = if let Shape::Named(t) = &s { t.len() as u64 } else { 0 };
    Wide { a: w.a + n, b: w.b + list.len() as u64, c: w.c + d as u64 + x as u64 }
}

#[inline(never)]
fn pair(n: i32, ok: bool) -> Result<i32, u32> {
    if ok { Ok(black_box(n)) } else { Err(black_box(n as u32 + 1)) }
}

#[inline(never)]
fn tuple(n: i64) -> (i64, f64) {
    (black_box(n), n as f64 / 2.0)
}

#[inline(never)]
fn shape(list: &[Shape]) -> usize {
    black_box(list.len())
}

fn main() {
    for i in 0..2 {
        let node = Node { val: 5, next: None, tag: Some(7) };
        let o = if i == 0 { Some(Box::new(Node { val: 9, next: Some(Box::new(node)), tag: None })) } else { None };
        let name = if i == 0 { "ann" } else { "bartholomew" };
        black_box(take(black_box(name), vec![1, 2, 3], o, if i == 0 { Kind::Alpha } else { Kind::Beta }, (1, -2), 'é').is_some());
        black_box(wide(Wide { a: 1, b: 2, c: 3 }, Shape::Named("shape".into()), 2.5, &[4, 5], 6).a);
        black_box(pair(black_box(40 + i), i == 0).is_ok());
        black_box(tuple(black_box(8)).0);
        black_box(shape(&[Shape::Circle(1.5), Shape::Rect { w: 2, h: 3 }, Shape::Named("n".into()), Shape::Empty]));
    }
    let n = Node { val: 0, next: None, tag: None };
    black_box((n.next.is_none(), n.tag));
}
