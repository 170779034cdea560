// Closures, trait methods, generic functions: names that kprobe prints and takes
// back.
use std::collections::HashMap;
use std::fmt;
use std::ops::{Add, Deref, Index};
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct P {
    x: i32,
    y: i32,
}
impl Add for P {
    type Output = P;
    #[inline(never)]
    fn add(self, o: P) -> P {
        P {
            x: self.x + o.x,
            y: self.y + o.y,
        }
    }
}
impl Add<i32> for P {
    type Output = P;
    #[inline(never)]
    fn add(self, o: i32) -> P {
        P {
            x: self.x + o,
            y: self.y,
        }
    }
}
struct V<T>(Vec<T>);
impl<T> Index<usize> for V<T> {
    type Output = T;
    #[inline(never)]
    fn index(&self, i: usize) -> &T {
        &self.0[i]
    }
}
impl<T> Deref for V<T> {
    type Target = [T];
    #[inline(never)]
    fn deref(&self) -> &[T] {
        &self.0
    }
}
impl<T: fmt::Debug> fmt::Display for V<T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}
trait Shape {
    fn area(&self) -> f64;
    fn name(&self) -> String {
        "shape".into()
    }
}
impl Shape for P {
    fn area(&self) -> f64 {
        (self.x * self.y) as f64
    }
}
impl Shape for (i32, i32) {
    fn area(&self) -> f64 {
        1.0
    }
}
impl Shape for [u8; 3] {
    fn area(&self) -> f64 {
        2.0
    }
}
impl Shape for &'static str {
    fn area(&self) -> f64 {
        3.0
    }
}
#[inline(never)]
fn apply<F: Fn(i32) -> i32>(f: F, n: i32) -> i32 {
    f(n)
}
#[inline(never)]
fn dynd(f: &dyn Fn(i32) -> i32) -> i32 {
    f(2)
}
mod a {
    pub mod b {
        #[inline(never)]
        pub fn deep<T: Default, const N: usize>() -> [T; N]
        where
            T: Copy,
        {
            [T::default(); N]
        }
    }
}
fn main() {
    let k = std::env::args().count() as i32;
    let c = move |n| {
        let g = |m: i32| m * k;
        apply(g, n) + 1
    };
    println!("{}", apply(c, 3) + dynd(&c));
    println!(
        "{:?} {:?}",
        P { x: k, y: 2 } + P { x: 1, y: k },
        P { x: k, y: 1 } + 3
    );
    let v = V(vec![k, 2, 3]);
    println!("{} {} {}", v, v[1], v.len());
    let mut m: HashMap<String, Box<dyn Shape>> = HashMap::new();
    m.insert("a".into(), Box::new(P { x: 1, y: k }));
    m.insert("b".into(), Box::new((1, 2)));
    m.insert("c".into(), Box::new([1u8, 2, 3]));
    m.insert("d".into(), Box::new("x"));
    for (n, s) in &m {
        println!("{} {} {}", n, s.area(), s.name());
    }
    println!("{:?} {:?}", a::b::deep::<i32, 3>(), a::b::deep::<u8, 5>());
    let t = std::thread::spawn(move || k + 1);
    println!("{}", t.join().unwrap());
    let mut w = vec![P { x: k, y: 1 }, P { x: 0, y: 2 }];
    w.sort_by(|a, b| a.x.cmp(&b.x));
    println!("{:?}", w);
}
