//! What calls of the kernel need where they are part of a transaction.

use super::{Annotation, Isolation, plain, resolve};
use guardrail_abi::{self as abi, Action};
use guardrail_binfmt::btf::Type;

/// Kinds of allocations that the runtime frees by their kind alone.
const FREED: u32 = abi::KIND_SLAB | abi::KIND_VMALLOC | abi::KIND_PAGE | abi::KIND_FRAG;
/// The runtime's functions that say where memory or a packet is new: it logs them.
const NEW: [&str; 8] =
    ["guarded_slab", "of_cache", "text_new", "bits_new", "pages_new", "frag_new", "skb_new", "skb_built"];

impl Isolation<'_> {
    /// What a transaction does at a call of a function, apart from what `border` says that the call does to rights.
    ///
    /// A row of `transact.txt` decides. Without one, memory that the call allocates is freed. A call is deferred that frees
    /// memory and returns nothing. Any other call is irrevocable.
    pub fn in_transaction(&self, name: &str, border: &Annotation) -> Annotation {
        let row = self.transact.get(name).or_else(|| self.transact.get(plain(name)));
        let proto = self.proto(name).or_else(|| self.proto(plain(name)));
        let owned = border.before.iter().find_map(|step| match &step.action {
            Action::Disown { pointer, kind } => Some((pointer.clone(), *kind)),
            _ => None,
        });
        let Some(row) = row else {
            let is_void = proto.as_ref().is_some_and(|proto| proto.result == Type::Void);
            return match owned {
                Some((pointer, kind)) if is_void => before(Action::Defer { pointer, kind, sync: 0 }),
                None if is_allocation(border) => Annotation::default(),
                // Assembly, which has no type, is what the compiler needs.
                None if proto.is_none() && border.is_empty() => Annotation::default(),
                _ => before(Action::Irrevocable { settles: 0 }),
            };
        };
        let (mut found, left_out) = resolve::function(self, row, proto.as_ref(), &[]);
        if !left_out.is_empty() {
            return before(Action::Irrevocable { settles: 0 });
        }
        for step in &mut found.before {
            if let (Action::Defer { pointer, kind, .. }, Some(owned)) = (&mut step.action, &owned) {
                (*pointer, *kind) = owned.clone();
            }
        }
        found
    }
}

fn before(action: Action) -> Annotation {
    Annotation { before: vec![action.into()], after: Vec::new() }
}

/// Whether a call does nothing but give the driver memory or a packet.
fn is_allocation(border: &Annotation) -> bool {
    let gives = |action: &Action| match action {
        Action::Own { kind, .. } => kind & !FREED == 0,
        Action::CreateObject { kind, .. } => *kind == abi::TYPE_SKB,
        Action::Custom { name, .. } | Action::Instead { name, .. } => NEW.contains(&name.as_str()),
        _ => false,
    };
    let more = |action: &Action| match action {
        Action::Grant { .. } | Action::GrantFields { .. } | Action::RequireObject { .. } => true,
        Action::Custom { name, .. } if !gives(action) => {
            name.starts_with("require_") || name == "grant_ref" || name == "device"
        }
        other => gives(other),
    };
    let mut all = border.before.iter().chain(&border.after);
    all.clone().any(|step| gives(&step.action)) && all.all(|step| more(&step.action))
}
