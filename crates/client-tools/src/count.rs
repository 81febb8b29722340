//! `count`: counts exactly how many instructions each vCPU runs, and at which level.
//!
//! An instruction counts when it begins. One that faults, such as a load from an absent page, begins
//! again when the handler returns, and counts again. The column `begun again` has the number of such
//! cases.
//!
//! On each kernel one more was seen, once at boot. It presumably changes code of its own block, and QEMU
//! runs it again alone. Otherwise the count equals that of QEMU itself (`-icount`). A string instruction
//! with a repeat prefix counts as often as QEMU begins it, and QEMU may then do many steps at once.

use crate::flows::Flows;
use guardrail_client_api::{
    Block, Cell, Client, Counter, Discontinuity, HookId, PerVcpu, Results, Setup, Table, Vcpu,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bit of a page fault's error code: the fault happened at an instruction fetch.
const FETCH: u64 = 1 << 4;
/// Size of the early exception entries in bytes; of these only page faults return.
const EARLY: u64 = 32 * 16;

/// The `count` client. With option `all=yes` it also counts user code and firmware, which slows them
/// down.
pub struct Count {
    flows: Flows<()>,
    /// Instructions outside the scope; `None` without `all=yes`.
    others: Option<Counter>,
    /// Link-time ranges of the page fault entries, of the running kernel and of early boot.
    page_faults: Vec<std::ops::Range<u64>>,
    /// Instructions that faulted and begin again.
    faults: PerVcpu<AtomicU64>,
}

impl Client for Count {
    const NAME: &'static str = "count";

    fn new(setup: &mut Setup) -> Result<Self, String> {
        setup.only(&["all"])?;
        let others = match setup.option("all") {
            None | Some("no") => None,
            Some("yes") => {
                setup.everything();
                Some(setup.counter())
            }
            Some(other) => return Err(format!("the option all={other} is neither yes nor no")),
        };
        let image = setup.kernel()?;
        let entry = |name, len| image.address_of(name).map(|start| start..start + len);
        let page_faults =
            entry("asm_exc_page_fault", 1).into_iter().chain(entry("early_idt_handler_array", EARLY));
        Ok(Count {
            flows: Flows::new(setup, true, false)?,
            others,
            page_faults: page_faults.collect(),
            faults: setup.per_vcpu(AtomicU64::default),
        })
    }

    fn block(&'static self, block: &mut Block<Self>) {
        match &self.others {
            Some(others) if !block.in_scope() => (0..block.len()).for_each(|i| block.add_at(i, others, 1)),
            _ => {
                self.flows.count(block);
                self.flows.watch(block);
            }
        }
    }

    fn executed(&'static self, vcpu: &mut Vcpu, data: u64) {
        self.flows.ends(vcpu, data);
    }

    fn discontinuity(&'static self, vcpu: &mut Vcpu, kind: Discontinuity, _: u64, to: u64) {
        let link = to.wrapping_sub(vcpu.slide().unwrap_or(0));
        if kind == Discontinuity::Exception && self.page_faults.iter().any(|range| range.contains(&link)) {
            // The processor has pushed the error code. An instruction that could not be fetched has not
            // begun.
            let rsp = vcpu.stack();
            if vcpu.word(rsp, 8).is_some_and(|why| why & FETCH == 0) {
                self.faults.of(vcpu).fetch_add(1, Relaxed);
            }
        }
        self.flows.begins(vcpu, kind, to, ());
    }

    fn entered(&'static self, vcpu: &mut Vcpu, hook: HookId) {
        self.flows.entered(vcpu, hook);
    }

    fn left(&'static self, vcpu: &mut Vcpu, hook: HookId, _: [u64; 6], _: u64) {
        self.flows.left(vcpu, hook);
    }

    fn switched(&'static self, vcpu: &mut Vcpu, from: u64, to: u64) {
        self.flows.switched(vcpu, from, to);
    }

    fn attached(&'static self, _: &mut Vcpu, booted: bool) {
        if booted {
            self.flows.restart();
        }
    }

    fn results(&'static self, results: &mut Results) {
        let mut columns = vec!["CPU".to_owned()];
        columns.extend(crate::flows::Level::ALL.map(|level| level.name().to_owned()));
        columns.push("all".into());
        if self.others.is_some() {
            columns.push("outside of the scope".into());
        }
        columns.push("begun again".into());
        let faults: Vec<u64> = self.faults.all().map(|faults| faults.load(Relaxed)).collect();
        let totals = self.flows.totals();
        let mut lines: Vec<Vec<u64>> = Vec::new();
        for (index, (levels, faults)) in (0..).zip(totals.iter().zip(faults)) {
            let mut line = levels.to_vec();
            line.push(levels.iter().sum());
            line.extend(self.others.map(|others| others.of(index)));
            line.push(faults);
            lines.push(line);
        }
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        let sum = (0..columns.len() - 1).map(|i| lines.iter().map(|line| line[i]).sum()).collect();
        let names = (0..lines.len()).map(|index| index.to_string()).chain(["all".to_owned()]);
        for (name, line) in names.zip(lines.iter().chain([&sum])) {
            let mut row = vec![Cell::Text(name)];
            row.extend(line.iter().map(|&count| Cell::Count(count)));
            rows.push(row);
        }
        let name = "instructions by CPU and context".to_owned();
        results.tables.push(Table { name, columns, rows, ..Table::default() });
    }
}
