//! Deterministic bytes for downloads and disks, and the checksum that the guest's `md5sum` prints.

use md5::{Digest, Md5};

/// The pattern repeats after a prime number of bytes, so that no power of two maps it onto itself.
const PERIOD: usize = 65_521;

/// Fills `buffer` with the pattern's bytes from `offset` on.
pub fn fill(mut offset: u64, buffer: &mut [u8]) {
    let table = table();
    for chunk in buffer.chunks_mut(PERIOD) {
        let start = (offset % PERIOD as u64) as usize;
        let first = chunk.len().min(PERIOD - start);
        chunk[..first].copy_from_slice(&table[start..start + first]);
        let rest = chunk.len() - first;
        chunk[first..].copy_from_slice(&table[..rest]);
        offset += chunk.len() as u64;
    }
}

fn table() -> &'static [u8; PERIOD] {
    static TABLE: std::sync::OnceLock<Box<[u8; PERIOD]>> = std::sync::OnceLock::new();
    TABLE.get_or_init(|| {
        let mut bytes = Box::new([0; PERIOD]);
        let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
        for byte in bytes.iter_mut() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = (state >> 32) as u8;
        }
        bytes
    })
}

/// The checksum that the guest's `md5sum` prints, computed piece by piece. It guards against damage, not
/// against malice.
#[derive(Clone, Debug, Default)]
pub struct Checksum {
    hash: Md5,
}

impl Checksum {
    /// Adds bytes to what the checksum covers.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    /// The checksum in hexadecimal.
    pub fn hex(self) -> String {
        format!("{:x}", self.hash.finalize())
    }

    /// The checksum of `length` bytes of the pattern.
    pub fn of_pattern(length: u64) -> Checksum {
        let mut sum = Checksum::default();
        let mut buffer = vec![0; 1 << 16];
        let mut done = 0;
        while done < length {
            let count = (length - done).min(buffer.len() as u64) as usize;
            fill(done, &mut buffer[..count]);
            sum.update(&buffer[..count]);
            done += count as u64;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_md5sum() {
        let mut sum = Checksum::default();
        sum.update(b"123456789");
        assert_eq!(sum.hex(), "25f9e794323b453885f5181f1b624d0b");
    }

    #[test]
    fn the_pattern_is_the_same_from_any_offset() {
        let mut whole = vec![0; 200_000];
        fill(0, &mut whole);
        let mut part = vec![0; 100_000];
        fill(70_000, &mut part);
        assert_eq!(whole[70_000..170_000], part);
    }
}
