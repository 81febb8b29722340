//! The fingerprint, which decides whether two findings are the same fault.

use crate::Finding;

/// A hash that is the same in every run and every build (FNV-1a, 64 bits).
#[derive(Clone, Copy, Debug)]
struct Fingerprint(u64);

impl Fingerprint {
    fn new() -> Self {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a text and a separator to the hash.
    fn add(mut self, text: &str) -> Self {
        for byte in text.bytes().chain([0xff]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self
    }

    fn hex(self) -> String {
        format!("{:016x}", self.0)
    }
}

impl Finding {
    /// Computes [`Finding::id`] from values that do not depend on addresses. For a race, only its two
    /// locations in the code count, in either order.
    pub fn fingerprint(&self) -> String {
        if let ("data-race", Some(other)) = (self.kind.as_str(), &self.other) {
            let mut sides = [&self.stack, &other.stack].map(|stack| {
                let top = stack.iter().find(|f| f.in_driver()).or(stack.first());
                top.map_or_else(String::new, |f| format!("{}+{:#x}", f.function, f.offset))
            });
            sides.sort();
            let hash = Fingerprint::new().add(&self.checker).add(&self.kind).add(&self.module);
            return sides.iter().fold(hash, |hash, side| hash.add(side)).hex();
        }
        let place = Fingerprint::new()
            .add(&self.checker)
            .add(&self.kind)
            .add(&self.module)
            .add(&self.function)
            .add(&self.offset.to_string());
        self.stack.iter().fold(place, |hash, frame| hash.add(&frame.function)).hex()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Finding, Frame, Inlined, Location, OtherAccess};

    fn stack(functions: &[(&str, u64)]) -> Vec<Frame> {
        let frame = |&(function, offset): &(&str, u64)| Frame {
            function: function.to_owned(),
            module: Some("drv".to_owned()),
            offset,
            ..Frame::default()
        };
        functions.iter().map(frame).collect()
    }

    fn race(first: (&str, u64), second: (&str, u64)) -> String {
        let other = OtherAccess { stack: stack(&[second]), ..OtherAccess::default() };
        Finding {
            kind: "data-race".to_owned(),
            stack: stack(&[first]),
            other: Some(other),
            ..Finding::default()
        }
        .fingerprint()
    }

    #[test]
    fn a_race_has_no_first_side() {
        assert_eq!(race(("f", 1), ("g", 2)), race(("g", 2), ("f", 1)));
        assert_ne!(race(("f", 1), ("g", 2)), race(("f", 1), ("g", 3)));
    }

    #[test]
    fn fingerprints_stay_the_same() {
        let finding = Finding {
            checker: "dmcheck".to_owned(),
            kind: "use-after-free".to_owned(),
            module: "drv".to_owned(),
            function: "f".to_owned(),
            offset: 0x10,
            stack: stack(&[("f", 0x10), ("g", 0x20)]),
            ..Finding::default()
        };
        assert_eq!(finding.fingerprint(), "00430173c5fba1a2");
        let later = Finding { event: 7, count: 3, message: "again".to_owned(), ..finding.clone() };
        assert_eq!(later.fingerprint(), finding.fingerprint());
        let mut inlined = finding.clone();
        inlined.stack[0].inlined = vec![Inlined { function: "h".to_owned(), location: None }];
        inlined.location = Some(Location { file: "drv.h".to_owned(), line: 3 });
        assert_eq!(inlined.fingerprint(), finding.fingerprint());
    }
}
