//! Pseudorandom numbers that depend on nothing but a seed.

/// A generator with 64 bits of state (a Weyl sequence with a mixing function).
#[derive(Clone, Debug)]
pub struct Random(u64);

/// How far apart the states of two numbers in a row are.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number behind a state: one step of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014).
pub fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(STEP);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Random {
    /// A generator whose numbers depend on all of `seeds`.
    pub fn new(seeds: &[u64]) -> Random {
        let mut random = Random(0x6a09_e667_f3bc_c908);
        for &seed in seeds {
            random.0 ^= seed;
            random.0 = random.next();
        }
        random
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        let number = mixed(self.0);
        self.0 = self.0.wrapping_add(STEP);
        number
    }

    /// A number below `limit`; 0 where `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % limit).unwrap_or(0)
    }

    /// True in one of `n` cases.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of `choices`, which has at least one entry.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// That many bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn numbers_depend_on_all_seeds() {
        let first = |seeds: &[u64]| Random::new(seeds).next();
        assert_eq!(first(&[1, 2]), first(&[1, 2]));
        assert_ne!(first(&[1, 2]), first(&[2, 1]));
        assert_ne!(first(&[1, 2]), first(&[1, 3]));
        assert_eq!(Random::new(&[7]).bytes(13).len(), 13);
        assert_eq!(Random::new(&[7]).below(0), 0);
    }
}
