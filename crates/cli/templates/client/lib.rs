//! @: counts the blocks that the kernel executes, and the writes to memory of each function's blocks.

use guardrail_client_api::{Access, Block, Cell, Client, Counter, PerVcpu, Results, Setup, Table, Vcpu, When, clients};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

struct NewClient {
    /// Translated code adds to it by itself.
    blocks: Counter,
    /// One for each vCPU, so that nothing is locked.
    bytes_written: PerVcpu<AtomicU64>,
    /// Counters of blocks that write, by the block's address.
    writers: Mutex<Vec<(u64, Counter)>>,
}

impl Client for NewClient {
    const NAME: &'static str = "@";

    fn new(setup: &mut Setup) -> Result<Self, String> {
        // Options are given as --client FILE.so:KEY=VALUE; this client has none.
        setup.only(&[])?;
        Ok(NewClient {
            blocks: setup.counter(),
            bytes_written: setup.per_vcpu(AtomicU64::default),
            writers: Mutex::default(),
        })
    }

    /// A block is translated: what is asked for here happens each time that it runs.
    fn block(&'static self, block: &mut Block<Self>) {
        block.add(&self.blocks, 1);
        let writes = block.counter();
        for index in 0..block.len() {
            block.add_at_access(index, When::Writes, &writes, 1);
            // A call for each write; its last argument is whatever we want to know again then.
            block.accesses(index, When::Writes, 0);
        }
        let address = block.address();
        self.writers.lock().unwrap_or_else(PoisonError::into_inner).push((address, writes));
    }

    fn accessed(&'static self, vcpu: &mut Vcpu, access: Access, _: u64) {
        self.bytes_written.of(vcpu).fetch_add(access.size(), Relaxed);
    }

    /// At any time, and at the end.
    fn results(&'static self, results: &mut Results) {
        let bytes: u64 = self.bytes_written.all().map(|bytes| bytes.load(Relaxed)).sum();
        results.notes.push(format!("{} blocks were executed, {bytes} bytes written", self.blocks.total()));
        let writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows: Vec<(u64, u64)> = writers.iter().map(|(block, count)| (*block, count.total())).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.1));
        rows.truncate(20);
        results.tables.push(Table {
            name: "blocks that write most".to_owned(),
            columns: vec!["block".to_owned(), "writes".to_owned()],
            // `Code` cells are shown with function, module and line.
            rows: rows.into_iter().map(|(block, count)| vec![Cell::Code(block), Cell::Count(count)]).collect(),
            ..Table::default()
        });
    }
}

clients!(NewClient);
