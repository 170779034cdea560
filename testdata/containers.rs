// Containers of Rust's std, filled at random; the program prints each as kprobe
// prints it, and then calls a function with it.
use std::collections::*;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;

struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn upto(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }
    fn many(&mut self) -> u64 {
        match self.upto(6) {
            0 => 0,
            1 => self.upto(300),
            _ => self.upto(6),
        }
    }
}

pub struct Point { x: i16, y: i32, on: bool }
pub struct Person { id: i32, name: String, scores: Vec<i32>, by: BTreeMap<String, i32> }

// A value at random, and as kprobe prints it: the first 8, 3 within each other.
trait Value {
    fn make(r: &mut Rng) -> Self;
    fn show(&self, o: &mut String, depth: u32);
}
fn all<'a, T: Value + 'a>(o: &mut String, depth: u32, list: impl Iterator<Item = &'a T>) {
    if depth >= 3 { o.push_str("{...}"); return; }
    o.push('{');
    for (i, v) in list.enumerate() {
        if i > 0 { o.push(','); }
        if i == 8 { o.push_str("..."); break; }
        v.show(o, depth + 1);
    }
    o.push('}');
}
fn pairs<'a, K: Value + 'a, V: Value + 'a>(o: &mut String, depth: u32, list: impl Iterator<Item = (&'a K, &'a V)>) {
    if depth >= 3 { o.push_str("{...}"); return; }
    o.push('{');
    for (i, (k, v)) in list.enumerate() {
        if i > 0 { o.push(','); }
        if i == 8 { o.push_str("..."); break; }
        o.push('[');
        k.show(o, depth + 1);
        o.push_str("]=");
        v.show(o, depth + 1);
    }
    o.push('}');
}
macro_rules! number { ($($t:ty)*) => { $(impl Value for $t {
    fn make(r: &mut Rng) -> Self { r.next() as $t }
    fn show(&self, o: &mut String, _: u32) { write!(o, "{}", self).unwrap(); }
})* } }
number! { i32 u8 u64 i16 usize }
impl Value for bool {
    fn make(r: &mut Rng) -> Self { r.upto(2) == 1 }
    fn show(&self, o: &mut String, _: u32) { write!(o, "{}", self).unwrap(); }
}
impl Value for f64 {
    fn make(r: &mut Rng) -> Self { r.upto(1000) as f64 / 4.0 - 50.0 }
    fn show(&self, o: &mut String, _: u32) { write!(o, "{}", self).unwrap(); }
}
impl Value for String {
    fn make(r: &mut Rng) -> Self { let n = r.upto(30); (0..n).map(|_| "abcdef XYZ".as_bytes()[r.upto(10) as usize] as char).collect() }
    fn show(&self, o: &mut String, _: u32) { write!(o, "\"{}\"", self).unwrap(); }
}
impl Value for Point {
    fn make(r: &mut Rng) -> Self { Point { x: i16::make(r), y: i32::make(r), on: bool::make(r) } }
    fn show(&self, o: &mut String, _: u32) { write!(o, "{{x={},y={},on={}}}", self.x, self.y, self.on).unwrap(); }
}
impl Value for Person {
    fn make(r: &mut Rng) -> Self { Person { id: i32::make(r), name: String::make(r), scores: Vec::make(r), by: BTreeMap::make(r) } }
    fn show(&self, o: &mut String, d: u32) {
        write!(o, "{{id={},name=\"{}\",scores=", self.id, self.name).unwrap();
        self.scores.show(o, d);
        o.push_str(",by=");
        self.by.show(o, d);
        o.push('}');
    }
}
macro_rules! list { ($($c:ident $($bound:path),*;)*) => { $(impl<T: Value $(+ $bound)*> Value for $c<T> {
    fn make(r: &mut Rng) -> Self { let n = r.many(); (0..n).map(|_| T::make(r)).collect() }
    fn show(&self, o: &mut String, d: u32) { all(o, d, self.iter()); }
})* } }
list! { Vec; LinkedList; BTreeSet Ord; HashSet Eq, std::hash::Hash; }
impl<T: Value> Value for VecDeque<T> {
    fn make(r: &mut Rng) -> Self {
        let mut d = VecDeque::new();
        for _ in 0..r.many() {
            match r.upto(5) {
                0 | 1 => d.push_front(T::make(r)),
                2 => { d.pop_front(); }
                _ => d.push_back(T::make(r)),
            }
        }
        d
    }
    fn show(&self, o: &mut String, d: u32) { all(o, d, self.iter()); }
}
impl<K: Value + Ord, V: Value> Value for BTreeMap<K, V> {
    fn make(r: &mut Rng) -> Self { let n = r.many(); (0..n).map(|_| (K::make(r), V::make(r))).collect() }
    fn show(&self, o: &mut String, d: u32) { pairs(o, d, self.iter()); }
}
impl<K: Value + Eq + std::hash::Hash, V: Value> Value for HashMap<K, V> {
    fn make(r: &mut Rng) -> Self { let n = r.many(); (0..n).map(|_| (K::make(r), V::make(r))).collect() }
    fn show(&self, o: &mut String, d: u32) { pairs(o, d, self.iter()); }
}
macro_rules! pointer { ($($c:ident)*) => { $(impl<T: Value> Value for $c<T> {
    fn make(r: &mut Rng) -> Self { $c::new(T::make(r)) }
    fn show(&self, o: &mut String, d: u32) { if d >= 3 { o.push_str("{...}"); } else { (**self).show(o, d + 1); } }
})* } }
pointer! { Box Rc Arc }
impl<T: Value> Value for Option<T> {
    fn make(r: &mut Rng) -> Self { if r.upto(3) > 0 { Some(T::make(r)) } else { None } }
    fn show(&self, o: &mut String, d: u32) {
        match self {
            Some(x) => { o.push_str("{Some={__0="); x.show(o, d); o.push_str("}}"); }
            None => o.push_str("{None}"),
        }
    }
}
impl<T: Value, E: Value> Value for Result<T, E> {
    fn make(r: &mut Rng) -> Self { if r.upto(2) > 0 { Ok(T::make(r)) } else { Err(E::make(r)) } }
    fn show(&self, o: &mut String, d: u32) {
        match self {
            Ok(x) => { o.push_str("{Ok={__0="); x.show(o, d); o.push_str("}}"); }
            Err(x) => { o.push_str("{Err={__0="); x.show(o, d); o.push_str("}}"); }
        }
    }
}
impl<A: Value, B: Value> Value for (A, B) {
    fn make(r: &mut Rng) -> Self { (A::make(r), B::make(r)) }
    fn show(&self, o: &mut String, d: u32) {
        o.push_str("{__0=");
        self.0.show(o, d);
        o.push_str(",__1=");
        self.1.show(o, d);
        o.push('}');
    }
}

macro_rules! each { ($($name:ident: $t:ty,)*) => {
    $(#[no_mangle] #[inline(never)] pub fn $name(x: &$t) { std::hint::black_box((x as *const $t as usize, stringify!($name))); })*
    fn round(r: &mut Rng) {
        $({
            let x = <$t>::make(r);
            let mut o = String::new();
            x.show(&mut o, 0);
            println!("{} x={}", &stringify!($name)[4..], o);
            $name(&x);
        })*
    }
} }
each! {
    see_vi: Vec<i32>, see_vb: Vec<u8>, see_vs: Vec<String>, see_vp: Vec<Point>, see_vv: Vec<Vec<i32>>, see_v4: Vec<Vec<Vec<Vec<u8>>>>, see_vf: Vec<f64>, see_vbool: Vec<bool>,
    see_vt: Vec<(i32, String)>, see_vo: Vec<Option<i32>>, see_vbx: Vec<Box<i32>>, see_ve: Vec<Person>,
    see_dq: VecDeque<i32>, see_dqs: VecDeque<String>, see_ll: LinkedList<i32>, see_lls: LinkedList<String>,
    see_hm: HashMap<String, i32>, see_hi: HashMap<i32, i32>, see_hv: HashMap<u8, Vec<i32>>, see_hs: HashSet<i32>, see_hss: HashSet<String>,
    see_bm: BTreeMap<i32, String>, see_bb: BTreeMap<u8, bool>, see_bs: BTreeSet<i32>, see_bv: BTreeMap<String, Vec<i32>>, see_bp: BTreeMap<u64, Point>,
    see_rc: Rc<i32>, see_arc: Arc<String>, see_arcv: Arc<Vec<i32>>, see_rcp: Rc<Point>, see_rce: Rc<Person>,
    see_os: Option<String>, see_ov: Option<Vec<i32>>, see_obx: Option<Box<i32>>, see_rv: Result<Vec<i32>, String>, see_rs: Result<i32, String>, see_oo: Option<Option<String>>,
    see_st: String, see_person: Person, see_tup: (Vec<i32>, String),
}

#[no_mangle] #[inline(never)] pub fn see_slice(x: &[i32]) { std::hint::black_box((x, "see_slice")); }
#[no_mangle] #[inline(never)] pub fn see_strs(x: &[String]) { std::hint::black_box((x, "see_strs")); }
#[no_mangle] #[inline(never)] pub fn see_str(x: &str) { std::hint::black_box((x, "see_str")); }
#[no_mangle] #[inline(never)] pub fn see_bslice(x: Box<[i32]>) { std::hint::black_box((x, "see_bslice")); }
#[no_mangle] #[inline(never)] pub fn see_box(x: Box<i32>) { std::hint::black_box((x, "see_box")); }
#[no_mangle] #[inline(never)] pub fn see_boxv(x: Box<Vec<i32>>) { std::hint::black_box((x, "see_boxv")); }

#[no_mangle] #[inline(never)] pub fn see_rcslice(x: &Rc<[i32]>) { std::hint::black_box((x, "see_rcslice")); }
#[no_mangle] #[inline(never)] pub fn see_rcstr(x: &Rc<str>) { std::hint::black_box((x, "see_rcstr")); }
#[no_mangle] #[inline(never)] pub fn see_arcslice(x: &Arc<[String]>) { std::hint::black_box((x, "see_arcslice")); }

fn tell<T: Value>(name: &str, x: &T) {
    let mut o = String::new();
    x.show(&mut o, 0);
    println!("{} x={}", name, o);
}

fn main() {
    let mut r = Rng(std::env::args().nth(1).map_or(1, |s| s.parse::<u64>().unwrap()).wrapping_mul(0x9e3779b97f4a7c15));
    for _ in 0..4 {
        round(&mut r);
        let v = Vec::<i32>::make(&mut r);
        tell("slice", &v);
        see_slice(&v);
        tell("rcslice", &v);
        see_rcslice(&Rc::from(v.clone()));
        tell("bslice", &v);
        see_bslice(v.into_boxed_slice());
        let s = Vec::<String>::make(&mut r);
        tell("strs", &s);
        see_strs(&s);
        tell("arcslice", &s);
        see_arcslice(&Arc::from(s));
        let t = String::make(&mut r);
        tell("str", &t);
        see_str(&t);
        tell("rcstr", &t);
        see_rcstr(&Rc::from(t.as_str()));
        let b = Box::<i32>::make(&mut r);
        tell("box", &b);
        see_box(b);
        let b = Box::<Vec<i32>>::make(&mut r);
        tell("boxv", &b);
        see_boxv(b);
    }
}
