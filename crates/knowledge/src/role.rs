//! Roles of functions: what checkers and mutants know of them besides effects, from `roles.txt` of each class.

use crate::table::Kind;
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

/// What a function is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It runs callbacks of many objects in threads that they share: those of one object are one strand.
    Worker,
    /// It runs callbacks after a grace period.
    AfterGrace,
    /// It runs the init functions of modules.
    Initializes,
    /// It runs the exit functions of modules.
    Unloads,
    /// The driver's function that it calls may return with a lock that a later one releases.
    KeepsLocks,
    /// It shows users what the driver returns.
    Shows,
    /// All functions that request an interrupt line end in it.
    RequestsLine,
    /// It has a function called after a grace period; the parameter.
    Defers,
    /// It uses its arguments and keeps none of them.
    KeepsNothing,
    /// It maps memory for a pool, which unmaps it when the last user has returned it.
    Pools,
    /// It takes or releases a lock, and a mutant may leave it out together with its counterparts.
    Droppable,
    /// It frees what the parameter points to, or drops a reference to it.
    Frees,
    /// Leaving a call out is no fault by itself.
    Idle,
    /// It copies or fills as many bytes as the parameter says.
    Sized,
    /// The driver waits in it on a stack of its own, and goes on in any task or interrupt.
    SwitchesStacks,
    /// It suspends a device while the system goes to sleep.
    Suspends,
    /// It waits until no handler of an interrupt runs. The device's interrupts were disabled before.
    Silences,
    /// With a context, which is the parameter, it takes no lock that its context holds, and reports that.
    NeverWaitsForItself,
    /// It initializes a lock; the parameter.
    InitsLock,
}

/// The functions of a role. Each has the position of the parameter, 0 where the verb has none.
#[derive(Default)]
struct Functions {
    /// By whole name: also the number of the row, because the first one counts.
    whole: FxHashMap<&'static str, (usize, usize)>,
    /// Those whose name has a `*`, in the order of their rows.
    parts: Vec<(&'static str, (usize, usize))>,
    rows: usize,
}

impl Functions {
    fn add(&mut self, name: &'static str, param: usize) {
        let found = (self.rows, param);
        self.rows += 1;
        if name.contains('*') {
            self.parts.push((name, found));
        } else {
            self.whole.entry(name).or_insert(found);
        }
    }
}

/// For each role, its functions.
static FUNCTIONS: LazyLock<[Functions; Role::NAMED.len()]> = LazyLock::new(|| {
    let mut functions: [Functions; Role::NAMED.len()] = Default::default();
    for row in Kind::Roles.rows() {
        for effect in &row.effects {
            let Some((role, _)) = Role::NAMED.iter().find(|(_, verb)| *verb == effect.verb()) else {
                continue;
            };
            let param = row.params.iter().position(|param| effect.word(1) == Some(param)).unwrap_or(0);
            row.names.iter().for_each(|name| functions[*role as usize].add(name, param));
        }
    }
    functions
});

impl Role {
    /// All roles, with their verbs in `roles.txt`.
    const NAMED: [(Role, &'static str); 19] = [
        (Role::Worker, "worker"),
        (Role::AfterGrace, "aftergrace"),
        (Role::Initializes, "initializes"),
        (Role::Unloads, "unloads"),
        (Role::KeepsLocks, "keepslocks"),
        (Role::Shows, "shows"),
        (Role::RequestsLine, "requestsline"),
        (Role::Defers, "defers"),
        (Role::KeepsNothing, "keepsnothing"),
        (Role::Pools, "pools"),
        (Role::Droppable, "droppable"),
        (Role::Frees, "frees"),
        (Role::Idle, "idle"),
        (Role::Sized, "sized"),
        (Role::SwitchesStacks, "switchesstacks"),
        (Role::Suspends, "suspends"),
        (Role::Silences, "silences"),
        (Role::NeverWaitsForItself, "neverwaitsforitself"),
        (Role::InitsLock, "initslock"),
    ];

    /// Whether a function has the role.
    pub fn has(self, function: &str) -> bool {
        self.param(function).is_some()
    }

    /// The position of the parameter that the role of a function is about, from 0; `None` if the function does not have the
    /// role.
    pub fn param(self, function: &str) -> Option<usize> {
        let functions = &FUNCTIONS[self as usize];
        let whole = functions.whole.get(function);
        let part = functions.parts.iter().find(|(name, _)| fits(name, function)).map(|(_, found)| found);
        whole.into_iter().chain(part).min().map(|(_, param)| *param)
    }
}

/// Whether a function has a name, in which `*` at the beginning or the end stands for anything.
fn fits(name: &str, function: &str) -> bool {
    match (name.strip_prefix('*'), name.strip_suffix('*')) {
        (None, None) => function == name,
        (None, Some(start)) => function.starts_with(start),
        (Some(end), None) => function.ends_with(end),
        (Some(_), Some(_)) => function.contains(name.trim_matches('*')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_role_has_functions() {
        let verbs: BTreeSet<&str> =
            Kind::Roles.rows().flat_map(|row| row.effects).map(|effect| effect.verb()).collect();
        assert_eq!(verbs, Role::NAMED.map(|(_, verb)| verb).into());
    }

    #[test]
    fn functions_are_found_by_name_and_by_part_of_it() {
        assert_eq!((Role::Frees.param("kfree"), Role::Frees.param("dma_free_attrs")), (Some(0), Some(2)));
        assert!(Role::KeepsNothing.has("mutex_lock") && !Role::KeepsNothing.has("__mutex_lock"));
        assert!(Role::Unloads.has("__do_sys_delete_module") && !Role::Unloads.has("delete_module_later"));
        assert!(Role::Pools.has("my_page_pool_alloc") && !Role::Worker.has("kfree"));
    }
}
