// Names of Rust that a probe place may be written with.
mod shop {
    pub struct Till {
        pub coins: u64,
    }
    pub trait Counts {
        fn count(&self) -> u64;
    }
    impl Counts for Till {
        #[inline(never)]
        fn count(&self) -> u64 {
            self.coins + 1
        }
    }
    impl Till {
        #[inline(never)]
        pub fn pay(&mut self, n: u64) -> u64 {
            self.coins += n;
            self.coins
        }
    }
    #[inline(never)]
    pub fn open(n: u64) -> Till {
        Till { coins: n * 3 + std::env::args().count() as u64 }
    }
}

fn main() {
    use shop::Counts;
    let mut t = shop::open(std::env::args().count() as u64);
    println!("{} {}", t.pay(3), t.count());
}
