//! `calls`: how often functions are called, by which callers, and how many instructions a call takes.
//!
//! A call begins at a function's first instruction, after a call or a jump. It ends with the return that
//! has its stack pointer. Interrupts, and threads that run while it sleeps, have stacks and clocks of
//! their own, so the call does not include them. Functions and instructions outside the scope are not
//! seen.

mod graph;

use crate::flows::{Flows, IRETQ, lock};
use graph::{Graph, Open};
use guardrail_client_api::binfmt::KernelImage;
use guardrail_client_api::{
    Block, Cell, Client, Discontinuity, HookId, Module, PerVcpu, Results, Setup, Table, Vcpu,
};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Position, in a callback's data, of the bits that say which event it is. An `iretq` has ones there.
const SHIFT: u32 = 56;
const ENTRY: u64 = 1;
const RETURN: u64 = 2;
/// Name prefixes of code that a call or return jumps through.
const THUNKS: [&str; 4] = ["__x86_indirect_", "__x86_return_", "__fentry__", "srso_"];

/// The `calls` client.
pub struct Calls {
    flows: Flows<Vec<Open>>,
    graphs: PerVcpu<Mutex<Graph>>,
    image: Arc<KernelImage>,
    /// Link-time addresses of the image's functions.
    functions: HashSet<u64>,
    /// Guest virtual addresses of modules' functions.
    of_modules: RwLock<HashSet<u64>>,
}

impl Client for Calls {
    const NAME: &'static str = "calls";

    fn new(setup: &mut Setup) -> Result<Self, String> {
        setup.only(&[])?;
        let image = setup.kernel()?;
        let (mut functions, mut others) = (HashSet::new(), Vec::new());
        for symbol in image.symbols().filter(|symbol| matches!(symbol.kind, 't' | 'T' | 'w' | 'W')) {
            // The cold part of a function is entered and left by jumps.
            let other =
                symbol.name.contains(".cold") || THUNKS.iter().any(|thunk| symbol.name.starts_with(thunk));
            if other {
                others.push(symbol.address);
            } else {
                functions.insert(symbol.address);
            }
        }
        functions.retain(|address| !others.contains(address));
        Ok(Calls {
            flows: Flows::new(setup, false, false)?,
            graphs: setup.per_vcpu(Mutex::default),
            image,
            functions,
            of_modules: RwLock::default(),
        })
    }

    fn block(&'static self, block: &mut Block<Self>) {
        self.flows.count(block);
        let slide = block.slide().unwrap_or(0);
        let at = |kind: u64, address: u64| kind << SHIFT | address & !(!0 << SHIFT);
        let entries: Vec<(usize, u64)> = {
            let modules = self.of_modules.read().unwrap_or_else(PoisonError::into_inner);
            let begins = |address: u64| {
                self.functions.contains(&address.wrapping_sub(slide)) || modules.contains(&address)
            };
            let places = (0..block.len()).map(|index| (index, block.insn_address(index)));
            places.filter(|place| begins(place.1)).collect()
        };
        entries.into_iter().for_each(|(index, address)| block.call_at(index, at(ENTRY, address)));
        let last = block.len() - 1;
        if block.returns() {
            block.call_at(last, at(RETURN, block.insn_address(last)));
        }
        self.flows.watch(block);
    }

    fn executed(&'static self, vcpu: &mut Vcpu, data: u64) {
        let rsp = vcpu.stack();
        let address = data | !0 << SHIFT;
        match data >> SHIFT {
            ENTRY => {
                let now = self.flows.now(vcpu);
                let mut cpu = self.flows.of(vcpu);
                let now = cpu.clock(now).insns;
                // A program enters the kernel and still has its own stack, so no earlier call is open.
                if rsp >> 63 == 0 {
                    cpu.top().data.clear();
                    return lock(self.graphs.of(vcpu)).began(0, address, 0);
                }
                // If the caller is outside the scope, the return address says which function it is.
                let caller = match graph::caller(&cpu.top().data, rsp) {
                    Some(caller) => caller,
                    None => {
                        vcpu.word(rsp, 8).filter(|to| to >> 63 != 0).map_or(0, |to| self.function(vcpu, to))
                    }
                };
                let unfinished = graph::enter(&mut cpu.top().data, Open::new(address, rsp, now, caller));
                lock(self.graphs.of(vcpu)).began(caller, address, unfinished);
            }
            RETURN => {
                let now = self.flows.now(vcpu);
                let mut cpu = self.flows.of(vcpu);
                let now = cpu.clock(now).insns;
                let mut graph = lock(self.graphs.of(vcpu));
                graph::leave(&mut cpu.top().data, rsp, now, &mut graph);
            }
            _ => {
                debug_assert!(data & IRETQ != 0);
                if let Some((mut flow, ran)) = self.flows.ends(vcpu, data) {
                    // This ends the entry of an interrupt, and the calls still open in it.
                    let mut graph = lock(self.graphs.of(vcpu));
                    while let Some(rsp) = flow.data.last().map(Open::stack) {
                        graph::leave(&mut flow.data, rsp, ran.insns, &mut graph);
                    }
                }
            }
        }
    }

    fn discontinuity(&'static self, vcpu: &mut Vcpu, kind: Discontinuity, _: u64, to: u64) {
        self.flows.begins(vcpu, kind, to, Vec::new());
    }

    fn entered(&'static self, vcpu: &mut Vcpu, hook: HookId) {
        self.flows.entered(vcpu, hook);
    }

    fn switched(&'static self, vcpu: &mut Vcpu, from: u64, to: u64) {
        self.flows.switched(vcpu, from, to);
    }

    fn loaded(&'static self, module: &Module) {
        let mut functions = self.of_modules.write().unwrap_or_else(PoisonError::into_inner);
        functions.extend(module.functions.iter().map(|function| function.0));
    }

    fn unloaded(&'static self, module: &Module) {
        let mut functions = self.of_modules.write().unwrap_or_else(PoisonError::into_inner);
        module.functions.iter().for_each(|function| {
            functions.remove(&function.0);
        });
    }

    fn attached(&'static self, _: &mut Vcpu, booted: bool) {
        if booted {
            self.flows.restart();
        }
    }

    fn results(&'static self, results: &mut Results) {
        let mut all = Graph::default();
        self.graphs.all().for_each(|graph| all.merge(&lock(graph)));
        let name = |address: u64| match address {
            0 => Cell::Text("(entry)".into()),
            address => Cell::Function(address),
        };
        let mut functions: Vec<_> = all.functions.iter().collect();
        functions.sort_unstable_by_key(|(address, known)| (std::cmp::Reverse(known.inclusive), **address));
        let rows = functions.iter().map(|&(&address, known)| {
            vec![
                name(address),
                Cell::Count(known.calls),
                Cell::Count(known.returned),
                Cell::Count(known.inclusive),
                Cell::Count(known.own),
                Cell::Real(known.inclusive as f64 / known.outermost.max(1) as f64),
                Cell::Count(known.shortest()),
                Cell::Count(known.longest),
            ]
        });
        let columns =
            ["function", "calls", "returned", "instructions", "own", "instructions each", "fewest", "most"];
        results.tables.push(Table {
            name: "functions".into(),
            columns: columns.map(str::to_owned).to_vec(),
            rows: rows.collect(),
            ..Table::default()
        });
        let mut edges: Vec<_> = all.edges.iter().collect();
        edges.sort_unstable_by_key(|(key, known)| (std::cmp::Reverse(**known), **key));
        let rows = edges.iter().map(|&(&(caller, callee), &(calls, inclusive))| {
            vec![name(caller), name(callee), Cell::Count(calls), Cell::Count(inclusive)]
        });
        results.tables.push(Table {
            name: "callers and callees".into(),
            columns: ["caller", "callee", "calls", "instructions"].map(str::to_owned).to_vec(),
            rows: rows.collect(),
            ..Table::default()
        });
        if all.unfinished > 0 {
            let text = format!("{} calls ended without a return of their own", all.unfinished);
            results.notes.push(text);
        }
    }
}

impl Calls {
    /// The start of the image's function that contains the call which returns to `address`. For code
    /// outside the image, an address inside the call.
    fn function(&self, vcpu: &Vcpu, address: u64) -> u64 {
        let slide = vcpu.slide().unwrap_or(0);
        let link = address.wrapping_sub(1).wrapping_sub(slide);
        match self.image.symbol_at(link) {
            Some(located) if self.image.is_text(link) => {
                link.wrapping_sub(located.offset).wrapping_add(slide)
            }
            _ => address.wrapping_sub(1),
        }
    }
}
