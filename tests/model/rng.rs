//! SplitMix64 (Steele, Lea, Flood 2014): the random numbers that programs are drawn from.

/// A source of numbers that repeats for the same seed.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// `true` in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of the values, by weight. One weight at least must not be 0.
    pub(crate) fn weighted<T: Copy>(&mut self, choices: &[(usize, T)]) -> T {
        let mut drawn = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in choices {
            match drawn.checked_sub(*weight) {
                Some(rest) => drawn = rest,
                None => return *value,
            }
        }
        unreachable!("the weights were summed up wrongly")
    }
}
