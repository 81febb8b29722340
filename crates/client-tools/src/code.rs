//! `code`: checks that the code that runs is the code that was instrumented. Code changes through
//! ftrace, jump labels, alternatives, kprobes, and modules loaded again at the same address.
//!
//! Each block keeps the bytes that it was translated from. Each time it runs, they are compared with the
//! guest's memory.

use guardrail_client_api::{Block, Cell, Client, Results, Setup, Table, Vcpu};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Most stale blocks that are listed.
const TOLD: usize = 100;
/// A physical address that was not looked up yet.
const UNKNOWN: u64 = u64::MAX;
const PAGE: u64 = 4096;

/// The `code` client.
pub struct Code {
    compared: AtomicU64,
    skipped: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Hash of the code translated last at each address, and how often it differed from the one before.
    blocks: HashMap<u64, (u64, u64)>,
    stale: HashMap<u64, u64>,
}

/// A translation. It lives as long as QEMU, because QEMU may run it at any time.
struct Translated {
    address: u64,
    bytes: Box<[u8]>,
    /// Physical addresses of its first and second page.
    physical: [AtomicU64; 2],
}

impl Client for Code {
    const NAME: &'static str = "code";

    fn new(setup: &mut Setup) -> Result<Self, String> {
        setup.only(&[])?;
        Ok(Code { compared: AtomicU64::new(0), skipped: AtomicU64::new(0), known: Mutex::default() })
    }

    fn block(&'static self, block: &mut Block<Self>) {
        let bytes: Box<[u8]> = block.bytes().into();
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for &byte in &bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = known.blocks.entry(block.address()).or_insert((hash, 0));
        // A block that ends earlier or later than before has other bytes too, and counts.
        if entry.0 != hash {
            *entry = (hash, entry.1 + 1);
        }
        drop(known);
        let physical = [AtomicU64::new(UNKNOWN), AtomicU64::new(UNKNOWN)];
        let translated: &'static Translated =
            Box::leak(Box::new(Translated { address: block.address(), bytes, physical }));
        block.call(std::ptr::from_ref(translated) as u64);
    }

    fn executed(&'static self, vcpu: &mut Vcpu, data: u64) {
        // SAFETY: `block` passed a reference that is never freed.
        let block = unsafe { &*(data as *const Translated) };
        match same(vcpu, block) {
            Some(true) => {
                self.compared.fetch_add(1, Relaxed);
            }
            Some(false) => {
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                *known.stale.entry(block.address).or_default() += 1;
            }
            None => {
                self.skipped.fetch_add(1, Relaxed);
            }
        }
    }

    fn results(&'static self, results: &mut Results) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let changed: u64 = known.blocks.values().map(|block| block.1).sum();
        let count = |what: &str, n: u64| vec![Cell::Text(what.to_owned()), Cell::Count(n)];
        results.tables.push(Table {
            name: "code that ran against code that was instrumented".to_owned(),
            columns: vec!["what".to_owned(), "count".to_owned()],
            rows: vec![
                count("blocks translated", known.blocks.len() as u64),
                count("translations of other code than before", changed),
                count("executions compared", self.compared.load(Relaxed)),
                count("executions not compared", self.skipped.load(Relaxed)),
                count("executions of other code than was instrumented", known.stale.values().sum()),
            ],
            ..Table::default()
        });
        if !known.stale.is_empty() {
            let rows = known.stale.iter().take(TOLD);
            results.tables.push(Table {
                name: "blocks whose code had changed".to_owned(),
                columns: vec!["block".to_owned(), "executions".to_owned()],
                rows: rows.map(|(&address, &count)| vec![Cell::Code(address), Cell::Count(count)]).collect(),
                ..Table::default()
            });
        }
    }
}

/// Whether memory holds the translated bytes. `None` where it cannot be read.
fn same(vcpu: &mut Vcpu, block: &Translated) -> Option<bool> {
    let first = (PAGE - block.address % PAGE) as usize;
    let (start, rest) = block.bytes.split_at(first.min(block.bytes.len()));
    let mut equal = part(vcpu, &block.physical[0], block.address, start)?;
    if !rest.is_empty() {
        equal &= part(vcpu, &block.physical[1], block.address + first as u64, rest)?;
    }
    Some(equal)
}

fn part(vcpu: &mut Vcpu, physical: &AtomicU64, address: u64, bytes: &[u8]) -> Option<bool> {
    let mut at = physical.load(Relaxed);
    if at == UNKNOWN {
        at = vcpu.translate(address)?;
        physical.store(at, Relaxed);
    }
    let mut left = bytes;
    while !left.is_empty() {
        // Whole words are read; some of their bytes belong to the block.
        let skip = (at % 8) as usize;
        let word = vcpu.physical_word(at - skip as u64, 8)?.to_le_bytes();
        let n = left.len().min(8 - skip);
        if word[skip..skip + n] != left[..n] {
            return Some(false);
        }
        left = &left[n..];
        at += n as u64;
    }
    Some(true)
}
