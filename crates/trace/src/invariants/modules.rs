//! The loaded modules and the ranges of their code, according to the trace.

use crate::event::{Head, RegionFlags};

/// Most modules that may be loaded at a time.
const MAX_MODULES: usize = 1024;

#[derive(Debug)]
struct Module {
    id: u64,
    /// Start and end of each region with code.
    code: Vec<(u64, u64)>,
}

/// The modules that are loaded at this point of the trace.
#[derive(Debug, Default)]
pub(super) struct Modules {
    loaded: Vec<Module>,
    /// Addresses of `struct module` of unwatched modules.
    others: Vec<u64>,
    /// Changes with every load, free and unload.
    state: u64,
}

impl Modules {
    /// A number that differs after every change.
    pub(super) fn state(&self) -> u64 {
        self.state
    }

    pub(super) fn load(&mut self, head: Head, operands: &[u64]) -> Result<(), &'static str> {
        self.state += 1;
        let id = head.address();
        let known = self.loaded.iter().position(|m| m.id == id);
        if let Some(at) = known {
            self.loaded.swap_remove(at);
        }
        if self.loaded.len() >= MAX_MODULES {
            return Err("more modules than the checker keeps");
        }
        let regions = operands.get(9..9 + 3 * usize::from(head.small)).unwrap_or_default();
        let mut code = Vec::new();
        let mut sane = true;
        for region in regions.chunks_exact(3) {
            let &[start, size, flags] = region else { continue };
            match start.checked_add(size) {
                Some(end) if flags & RegionFlags::TEXT != 0 && size > 0 => code.push((start, end)),
                Some(_) => {}
                None => sane = false,
            }
        }
        let any = !code.is_empty();
        self.loaded.push(Module { id, code });
        match (known, sane, any) {
            (Some(_), ..) => Err("a module is loaded that is loaded already"),
            (_, false, _) => Err("a module has a region that wraps around"),
            (.., false) => Err("a module has no code"),
            _ => Ok(()),
        }
    }

    pub(super) fn free(&mut self, start: u64, end: u64) -> Result<(), &'static str> {
        self.state += 1;
        if end < start {
            return Err("a range is given back that ends before it starts");
        }
        for module in &mut self.loaded {
            let mut left = Vec::with_capacity(module.code.len());
            for &(from, to) in &module.code {
                if end <= from || to <= start {
                    left.push((from, to));
                    continue;
                }
                if from < start {
                    left.push((from, start));
                }
                if end < to {
                    left.push((end, to));
                }
            }
            // A trace could cut regions into any number of pieces; a real module's code has only a few.
            left.truncate(64);
            module.code = left;
        }
        Ok(())
    }

    /// Removes a watched module. Returns false where it was not loaded.
    pub(super) fn unload(&mut self, id: u64) -> bool {
        self.state += 1;
        let known = self.loaded.iter().position(|m| m.id == id);
        if let Some(at) = known {
            self.loaded.swap_remove(at);
        }
        known.is_some()
    }

    /// Adds a module that is not watched. None of its code is in the trace.
    pub(super) fn load_other(&mut self, head: Head, operands: &[u64]) -> Result<(), &'static str> {
        let id = head.address();
        let regions = operands.get(9..9 + 3 * usize::from(head.small)).unwrap_or_default();
        if self.others.contains(&id) || self.loaded.iter().any(|m| m.id == id) {
            return Err("a module is loaded that is loaded already");
        }
        if self.others.len() >= MAX_MODULES {
            return Err("more modules than the checker keeps");
        }
        self.others.push(id);
        match regions.chunks_exact(3).all(|region| region[0].checked_add(region[1]).is_some()) {
            true => Ok(()),
            false => Err("a module has a region that wraps around"),
        }
    }

    /// Removes an unwatched module. Returns false where it was not loaded.
    pub(super) fn unload_other(&mut self, id: u64) -> bool {
        let known = self.others.iter().position(|&other| other == id);
        if let Some(at) = known {
            self.others.swap_remove(at);
        }
        known.is_some()
    }

    pub(super) fn holds_code(&self, address: u64, bytes: u32) -> bool {
        let Some(end) = address.checked_add(u64::from(bytes)) else { return false };
        self.loaded.iter().flat_map(|m| &m.code).any(|&(from, to)| from <= address && end <= to)
    }
}
