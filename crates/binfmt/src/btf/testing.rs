//! Makes BTF for tests.

/// Assembles BTF: strings by name, types by raw words.
#[derive(Debug)]
pub struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    base_strings: u32,
}

impl Builder {
    /// `base_strings` is the length of the base's strings; 0 without a base.
    pub fn new(base_strings: u32) -> Builder {
        Builder {
            types: Vec::new(),
            strings: if base_strings == 0 { vec![0] } else { Vec::new() },
            base_strings,
        }
    }

    /// Adds a string; returns its offset.
    pub fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.base_strings + self.strings.len() as u32;
        self.strings.extend_from_slice(name.as_bytes());
        self.strings.push(0);
        at
    }

    /// Adds a type: its kind, the number of its members, its size or target, and the words that follow.
    pub fn add(&mut self, name: &str, kind: u32, vlen: u32, value: u32, extra: &[u32]) {
        let name = self.name(name);
        for word in [name, kind << 24 | vlen, value].iter().chain(extra) {
            self.types.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// The section: header, types, strings.
    pub fn build(&self) -> Vec<u8> {
        let mut out = vec![0x9f, 0xeb, 1, 0];
        let types = self.types.len() as u32;
        for word in [24, 0, types, types, self.strings.len() as u32] {
            out.extend_from_slice(&u32::to_le_bytes(word));
        }
        out.extend_from_slice(&self.types);
        out.extend_from_slice(&self.strings);
        out
    }
}
