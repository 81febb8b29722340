//! Pseudorandom numbers that are the same on every machine, always.

/// A generator (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The generator of one mutant.
    pub(crate) fn new(seed: u64, kind: &str, number: u64) -> Random {
        let name = kind.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut random = Random(seed ^ name);
        random.0 = random.next() ^ number;
        random.next();
        random
    }

    /// The next number, from the whole range of 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; zero where `end` is zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `first` to `last`, both included.
    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first) + 1)
    }

    /// Puts a list in random order.
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// By how much a loop's bound or a copy's size grows: 8 with 50 %, 8 to 1K with 44 %, 1K to 2K with 6 %.
    pub(crate) fn increment(&mut self) -> u64 {
        match self.below(100) {
            0..50 => 8,
            50..94 => self.between(8, 1024),
            _ => self.between(1024, 2048),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_seed_kind_and_number_alone() {
        let first = |seed, kind, number| Random::new(seed, kind, number).next();
        assert_eq!(first(1, "a", 0), first(1, "a", 0));
        let all = [first(1, "a", 0), first(2, "a", 0), first(1, "b", 0), first(1, "a", 1)];
        assert!((1..4).all(|i| !all[..i].contains(&all[i])));
    }

    #[test]
    fn increments_are_spread_as_promised() {
        let mut random = Random::new(7, "increments", 0);
        let all: Vec<u64> = (0..10_000).map(|_| random.increment()).collect();
        let share = |low, high| all.iter().filter(|&&n| n >= low && n <= high).count();
        assert!((4800..5200).contains(&share(8, 8)));
        assert!((4200..4600).contains(&share(9, 1024)));
        assert!((500..700).contains(&share(1025, 2048)));
        assert_eq!(share(8, 2048), 10_000);
        assert_eq!(random.below(0), 0);
    }
}
