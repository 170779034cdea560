// Structures with strings in them, for tests of values printed whole.
use std::io::{stdin, stdout, Write};

struct Inner {
    tag: &'static str,
    n: i32,
}

pub struct Item {
    name: &'static str,
    owned: String,
    inner: Inner,
}

#[no_mangle]
#[inline(never)]
pub extern "C" fn take(p: &Item) -> i32 {
    p.inner.n + p.name.len() as i32 + p.owned.len() as i32 + p.inner.tag.len() as i32
}

fn main() {
    let item = Item { name: "a name", owned: String::from("owned text"), inner: Inner { tag: "tag", n: 7 } };
    let mut line = String::new();
    println!("ready");
    stdout().flush().unwrap();
    stdin().read_line(&mut line).unwrap();
    let mut sum = 0;
    for _ in 0..3 {
        sum += take(std::hint::black_box(&item));
    }
    println!("done {}", sum);
    stdout().flush().unwrap();
    stdin().read_line(&mut line).unwrap();
    std::process::exit(7);
}
