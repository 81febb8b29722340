//! Coherent memory, pools, and mapped device registers.

use super::maps::Maps;
use super::{NAME, arg, place, text};
use crate::checker::{Cx, Draft, Hooked, Site};
use crate::machine::{Object, USER_END};
use crate::stacks::StackId;
use guardrail_finding::Severity;
use guardrail_knowledge::effect::{Class, DmaOp};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};

/// Most pieces of each kind that are known at a time.
const MAX: usize = 1 << 16;
/// Most freed pieces that are remembered.
const MAX_DEAD: usize = 1 << 12;
/// Results from here up are error codes.
const ERRORS: u64 = u64::MAX - 4094;

/// Who owns a piece of memory, and for which device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub dev: u64,
    pub module: Option<u32>,
    size: u64,
    stack: StackId,
}

#[derive(Debug)]
struct Pool {
    owner: Owner,
    blocks: FxHashMap<u64, StackId>,
}

/// The memory that is allocated or mapped now, by address.
#[derive(Debug, Default)]
pub(super) struct Memory {
    coherent: FxHashMap<u64, Owner>,
    pools: FxHashMap<u64, Pool>,
    io: FxHashMap<u64, Owner>,
    dead: BTreeMap<u64, Object>,
    dead_order: VecDeque<u64>,
}

fn owner(hook: &Hooked, dev: u64, size: u64) -> Owner {
    Owner { dev, module: hook.module, size, stack: hook.stack }
}

impl Memory {
    pub fn coherent(&mut self, hook: &Hooked, dev: u64, size: u64, at: u64) {
        if self.coherent.len() < MAX {
            self.coherent.insert(at, owner(hook, dev, size));
        }
    }

    pub fn pool(&mut self, hook: &Hooked, dev: u64, size: u64, pool: u64) {
        if self.pools.len() < MAX {
            self.pools.insert(pool, Pool { owner: owner(hook, dev, size), blocks: FxHashMap::default() });
        }
    }

    pub fn block(&mut self, hook: &Hooked, pool: u64, at: u64) {
        if let Some(pool) = self.pools.get_mut(&pool)
            && at != 0
            && pool.blocks.len() < MAX
        {
            pool.blocks.insert(at, hook.stack);
        }
    }

    pub fn map_io(&mut self, hook: &Hooked, at: u64) {
        // Ports have small numbers as addresses. What the kernel maps for its own purposes in a driver's call
        // is never unmapped.
        if (USER_END..ERRORS).contains(&at) && hook.by_driver && self.io.len() < MAX {
            self.io.insert(at & !4095, owner(hook, 0, 0));
        }
    }

    pub fn unmap_io(&mut self, at: u64) {
        self.io.remove(&(at & !4095));
    }

    /// Coherent memory, a block or a pool is about to be freed.
    pub fn freed(&mut self, cx: &mut Cx<'_>, hook: &Hooked, op: &DmaOp) {
        let (state, judged) = (cx.state, hook.module.is_some());
        match *op {
            DmaOp::FreeCoherent { dev, size, cpu, .. } => {
                let (dev, size) = (arg(&hook.args, dev), arg(&hook.args, size));
                let Some(owner) = self.coherent.remove(&arg(&hook.args, cpu)) else { return };
                if !judged || owner.dev == dev && owner.size == size {
                    return;
                }
                cx.report(NAME, "dma-unmap-mismatch", place(cx, hook), || Draft {
                    related: vec![text::related(state, "allocated", owner.stack)],
                    ..Draft::error(if owner.dev == dev {
                        format!("{} of coherent memory freed with the size {size}", text::bytes(owner.size))
                    } else {
                        format!("{} of coherent memory of another device freed", text::bytes(owner.size))
                    })
                });
            }
            DmaOp::PoolFree { pool, cpu, .. } => {
                let (pool, cpu) = (arg(&hook.args, pool), arg(&hook.args, cpu));
                if self.pools.get_mut(&pool).is_none_or(|pool| pool.blocks.remove(&cpu).is_some()) {
                    return;
                }
                // A block that is in no pool is freed twice; other checkers report that.
                let Some(stack) = self.pools.values_mut().find_map(|pool| pool.blocks.remove(&cpu)) else {
                    return;
                };
                if judged {
                    cx.report(NAME, "dma-unmap-mismatch", place(cx, hook), || Draft {
                        related: vec![text::related(state, "allocated", stack)],
                        ..Draft::error("a block of one DMA pool freed into another".to_owned())
                    });
                }
            }
            DmaOp::DestroyPool { pool } => {
                let Some(pool) = self.pools.remove(&arg(&hook.args, pool)) else { return };
                let mut blocks: Vec<StackId> = pool.blocks.values().copied().collect();
                blocks.sort_unstable();
                if let Some(&stack) = blocks.first().filter(|_| judged) {
                    let count = blocks.len();
                    cx.report(NAME, "dma-leak", place(cx, hook), || Draft {
                        severity: Severity::Warning,
                        related: vec![text::related(state, "allocated", stack)],
                        ..Draft::error(format!(
                            "a DMA pool destroyed while {} of {} not freed",
                            if count == 1 { "1 block".to_owned() } else { format!("{count} blocks") },
                            if count == 1 {
                                format!("{} is", text::bytes(pool.owner.size))
                            } else {
                                format!("{} are", text::bytes(pool.owner.size))
                            }
                        ))
                    });
                }
            }
            _ => {}
        }
    }

    /// Reports memory that should have been freed or unmapped.
    pub fn leaks(&mut self, cx: &mut Cx<'_>, when: &str, which: impl Fn(&Owner) -> bool) {
        let mut left: Vec<(Owner, String)> = Vec::new();
        left.extend(
            self.coherent
                .values()
                .map(|o| (*o, format!("{} of coherent memory not freed", text::bytes(o.size)))),
        );
        left.extend(self.pools.values().map(|p| {
            (p.owner, format!("a DMA pool for blocks of {} not destroyed", text::bytes(p.owner.size)))
        }));
        left.extend(self.io.values().map(|o| (*o, "device registers still mapped".to_owned())));
        left.retain(|(owner, _)| owner.module.is_some() && which(owner));
        left.sort_by_key(|(owner, _)| owner.stack);
        for (owner, what) in left {
            cx.report(NAME, "dma-leak", Site::Stack(owner.stack), || Draft {
                severity: Severity::Warning,
                ..Draft::error(format!("{what} when {when}"))
            });
        }
    }

    pub fn forget(&mut self, which: impl Fn(&Owner) -> bool) {
        self.coherent.retain(|_, owner| !which(owner));
        self.pools.retain(|_, pool| !which(&pool.owner));
        self.io.retain(|_, owner| !which(owner));
    }

    /// An object was freed. Where it is DMA memory of the driver, no access to it is allowed any more.
    pub fn die(&mut self, maps: &mut Maps, object: &Object) {
        if object.class != Class::Dma || !object.by_driver || object.size == 0 {
            return;
        }
        for page in pages(object) {
            maps.watch(page);
        }
        if let Some(old) = self.dead.insert(object.start, object.clone()) {
            pages(&old).for_each(|page| maps.unwatch(page));
        } else {
            self.dead_order.push_back(object.start);
        }
        while self.dead_order.len() > MAX_DEAD {
            if let Some(oldest) = self.dead_order.pop_front()
                && let Some(old) = self.dead.remove(&oldest)
            {
                pages(&old).for_each(|page| maps.unwatch(page));
            }
        }
    }

    /// Memory is allocated again, or nothing is known about it any more.
    pub fn revive(&mut self, maps: &mut Maps, from: u64, to: u64) {
        if self.dead.is_empty() {
            return;
        }
        let over: Vec<u64> = self
            .dead
            .range(..to)
            .rev()
            .take(64)
            .filter(|(_, object)| object.end() > from)
            .map(|(start, _)| *start)
            .collect();
        for start in over {
            if let Some(old) = self.dead.remove(&start) {
                pages(&old).for_each(|page| maps.unwatch(page));
            }
        }
    }

    /// Whether an access is to freed DMA memory, which it then reports.
    pub fn touched(&mut self, cx: &mut Cx<'_>, place: Site, addr: u64, len: u64, store: bool) -> bool {
        let end = addr.saturating_add(len);
        let Some((_, object)) = self.dead.range(..end).next_back().filter(|(_, o)| addr < o.end()) else {
            return false;
        };
        let object = object.clone();
        cx.report(NAME, "dma-use-after-free", place, || {
            let message = format!(
                "{} of {} at offset {} of {} of DMA memory that was freed",
                text::access_word(store),
                text::bytes(len),
                addr.saturating_sub(object.start),
                text::bytes(object.size)
            );
            Draft {
                access: Some(text::access(store, addr, len)),
                object: Some(object),
                ..Draft::error(message)
            }
        });
        true
    }
}

fn pages(object: &Object) -> impl Iterator<Item = u64> {
    let last = object.end().saturating_sub(1) >> 12;
    (object.start >> 12..=last).take(1 << 12).map(|page| page << 12)
}
