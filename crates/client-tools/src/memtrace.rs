//! `memtrace`: the addresses of all memory accesses, in a file.
//!
//! The file begins with the 8 bytes `GRMEMTR1`. Pieces follow. Each piece is of one vCPU and compressed by
//! itself, so a file that ends early is readable up to there. All numbers are little-endian:
//!
//! | bytes | what |
//! |-------|------|
//! | 4 | number of the vCPU |
//! | 4 | N, the number of accesses in the piece |
//! | 4 | length of the compressed rest of the piece (zstd) |
//! | 8 N | addresses of instructions |
//! | 8 N | addresses that they accessed |
//! | N | bits 0 to 3: the size as a power of two; bit 4: set for a store; bit 5: set for a device's registers |
//!
//! The accesses of one vCPU are in the order in which it made them. Between vCPUs there is no order except
//! that of the pieces.

use crate::flows::lock;
use guardrail_client_api::{Access, Block, Client, PerVcpu, Results, Setup, Vcpu, When};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The first bytes of a file.
pub const MAGIC: &[u8; 8] = b"GRMEMTR1";
/// Most accesses in a piece.
const PIECE: usize = 1 << 16;
/// Most accesses that are kept, unless a limit is given.
const LIMIT: u64 = 100_000_000;
/// The fastest compression level of zstd.
const COMPRESSION: i32 = 1;
const FILE: &str = "memory.trace";

/// The `memtrace` client. Options: `file=PATH`, `limit=N` accesses, `stores=yes` for stores only.
pub struct MemTrace {
    path: PathBuf,
    file: Mutex<Result<File, String>>,
    pieces: PerVcpu<Mutex<Piece>>,
    limit: u64,
    kept: AtomicU64,
    seen: AtomicU64,
    when: When,
}

/// Accesses that are not written yet.
#[derive(Debug, Default)]
struct Piece {
    instructions: Vec<u64>,
    addresses: Vec<u64>,
    kinds: Vec<u8>,
}

impl Piece {
    fn add(&mut self, instruction: u64, address: u64, kind: u8) {
        self.instructions.push(instruction);
        self.addresses.push(address);
        self.kinds.push(kind);
    }

    /// Encodes the piece as in the file, and empties it.
    fn take(&mut self, vcpu: u32) -> io::Result<Vec<u8>> {
        let mut raw = Vec::with_capacity(self.kinds.len() * 17);
        self.instructions
            .iter()
            .chain(&self.addresses)
            .for_each(|word| raw.extend_from_slice(&word.to_le_bytes()));
        raw.extend_from_slice(&self.kinds);
        let packed = zstd::bulk::compress(&raw, COMPRESSION)?;
        let mut piece = Vec::with_capacity(packed.len() + 12);
        for number in [vcpu, self.kinds.len() as u32, packed.len() as u32] {
            piece.extend_from_slice(&number.to_le_bytes());
        }
        piece.extend_from_slice(&packed);
        self.instructions.clear();
        self.addresses.clear();
        self.kinds.clear();
        Ok(piece)
    }
}

impl Client for MemTrace {
    const NAME: &'static str = "memtrace";

    fn new(setup: &mut Setup) -> Result<Self, String> {
        setup.only(&["file", "limit", "stores"])?;
        let when = match setup.option("stores") {
            None | Some("no") => When::Both,
            Some("yes") => When::Writes,
            Some(other) => return Err(format!("the option stores={other} is neither yes nor no")),
        };
        let path = setup.option("file").map_or_else(|| setup.folder().join(FILE), PathBuf::from);
        let open = || {
            let mut file = File::create(&path)?;
            file.write_all(MAGIC)?;
            Ok(file)
        };
        let file = open().map_err(|e: io::Error| format!("cannot write {}: {e}", path.display()))?;
        Ok(MemTrace {
            path,
            file: Mutex::new(Ok(file)),
            pieces: setup.per_vcpu(Mutex::default),
            limit: setup.number("limit", LIMIT)?,
            kept: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            when,
        })
    }

    fn block(&'static self, block: &mut Block<Self>) {
        if self.kept.load(Relaxed) >= self.limit {
            return;
        }
        (0..block.len()).for_each(|index| block.accesses(index, self.when, block.insn_address(index)));
    }

    fn accessed(&'static self, vcpu: &mut Vcpu, access: Access, pc: u64) {
        self.seen.fetch_add(1, Relaxed);
        if self.kept.fetch_add(1, Relaxed) >= self.limit {
            self.kept.fetch_sub(1, Relaxed);
            return;
        }
        let size = access.size().trailing_zeros() as u8;
        let kind = size | u8::from(access.is_store()) << 4 | u8::from(access.is_io()) << 5;
        let mut piece = lock(self.pieces.of(vcpu));
        piece.add(pc, access.address, kind);
        if piece.kinds.len() >= PIECE {
            self.write(vcpu.index(), &mut piece);
        }
    }

    fn detached(&'static self) {
        self.flush();
    }

    fn results(&'static self, results: &mut Results) {
        self.flush();
        let (kept, seen) = (self.kept.load(Relaxed), self.seen.load(Relaxed));
        results.notes.push(format!("{kept} accesses are in {}", self.path.display()));
        if seen > kept {
            results.notes.push(format!("{} more came after the limit and are not there", seen - kept));
        }
        if let Err(why) = &*lock(&self.file) {
            results.notes.push(why.clone());
        }
        results.files.push(self.path.clone());
    }
}

impl MemTrace {
    fn flush(&self) {
        for (piece, vcpu) in self.pieces.all().zip(0..) {
            let mut piece = lock(piece);
            if !piece.kinds.is_empty() {
                self.write(vcpu, &mut piece);
            }
        }
    }

    /// Writes a piece. After an error, nothing more is written.
    fn write(&self, vcpu: u32, piece: &mut Piece) {
        let bytes = piece.take(vcpu);
        let mut file = lock(&self.file);
        let Ok(open) = &mut *file else { return };
        if let Err(e) = bytes.and_then(|bytes| open.write_all(&bytes)) {
            *file =
                Err(format!("cannot write {}: {e}; what is there already can be read", self.path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_has_the_documented_layout() {
        let mut piece = Piece::default();
        piece.add(0xffff_ffff_8100_0000, 0xffff_8880_0000_1000, 3);
        piece.add(0xffff_ffff_8100_0004, 0xffff_8880_0000_1008, 2 | 1 << 4);
        let bytes = piece.take(1).unwrap();
        assert_eq!(bytes[..8], [1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(bytes.len(), 12 + u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize);
        let raw = zstd::bulk::decompress(&bytes[12..], 1 << 20).unwrap();
        assert_eq!(raw.len(), 2 * 17);
        assert_eq!(raw[8..16], 0xffff_ffff_8100_0004u64.to_le_bytes());
        assert_eq!(raw[16..24], 0xffff_8880_0000_1000u64.to_le_bytes());
        assert_eq!(raw[32..], [3, 0x12]);
        assert!(piece.kinds.is_empty());
    }
}
