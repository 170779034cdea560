// A program of Rust's variables: enums, slices, strings, references, boxes.
use std::hint::black_box;

#[derive(Clone, Copy, Debug)]
enum Color {
    Red = 1,
    Green = 7,
}

enum Shape {
    Empty,
    Round(f64),
    Box { w: i32, h: i32 },
}

struct Conn<'a> {
    fd: i32,
    name: &'a str,
    owned: String,
    hist: [i32; 4],
    color: Color,
    next: Option<Box<Conn<'a>>>,
    up: bool,
    letter: char,
}

#[inline(never)]
fn scalars(a: i8, b: u16, c: i64, d: bool, e: f64, f: f32, g: char) -> i64 {
    let local = a as i64 + c;
    black_box(b);
    black_box(d);
    black_box(e + f as f64);
    black_box(g); // line: scalars body
    black_box(local)
}

#[inline(never)]
fn text(s: &str, list: &[i32], c: &Conn) -> usize {
    let n = s.len() + list.len();
    black_box(c.name);
    black_box(n + c.owned.len()) // line: text body
}

#[inline(never)]
fn shapes(s: &Shape, c: Color) -> i32 {
    let area = match s {
        Shape::Empty => 0,
        Shape::Round(r) => *r as i32,
        Shape::Box { w, h } => w * h,
    };
    black_box(c as i32);
    black_box(area) // line: shapes body
}

fn main() {
    let rounds: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1);
    for i in 0..rounds {
        let c = Conn {
            fd: 42, name: "alpha", owned: String::from("owned text"), hist: [1, 2, 3, 4], color: Color::Green,
            next: None, up: true, letter: 'é',
        };
        black_box(scalars(-3, 60000, 1 << 40, true, 2.5, 0.25, 'x'));
        black_box(text("some text", &[5, 6, 7], &c));
        black_box(shapes(&Shape::Box { w: 3, h: 4 + i as i32 }, c.color));
        black_box(shapes(&Shape::Round(2.0), Color::Red));
        black_box(shapes(&Shape::Empty, c.color));
        black_box((c.fd, c.hist, c.up, c.letter, c.next.is_some()));
    }
}
