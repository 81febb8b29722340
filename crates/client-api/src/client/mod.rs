//! What a client gets: its setup, the blocks that it instruments, call stacks.
//!
//! **Knows**: the trait [`Client`], and how its methods are called without its type.
//!
//! **Must not know**: when a client is attached, and which clients run.
//!
//! **Invariants**: frequent callbacks are generic over the client's type, so they need no lookup.

mod block;
mod setup;
mod unwind;

pub use block::{Block, When};
pub use setup::Setup;
pub use unwind::Unwinder;
pub(crate) use unwind::forget;

use crate::host::{Erased, Host, Shared, Vcpu};
use crate::{Client, Discontinuity, HookId};
use guardrail_trace::client::{Module, Results};

impl<C: Client> Erased for C {
    fn block(&'static self, shared: &Shared, host: &Host) {
        Client::block(self, &mut Block::new(shared, host));
    }

    fn entered(&'static self, vcpu: &mut Vcpu, hook: HookId) {
        Client::entered(self, vcpu, hook);
    }

    fn left(&'static self, vcpu: &mut Vcpu, hook: HookId, args: [u64; 6], result: u64) {
        Client::left(self, vcpu, hook, args, result);
    }

    fn discontinuity(&'static self, vcpu: &mut Vcpu, kind: Discontinuity, from: u64, to: u64) {
        Client::discontinuity(self, vcpu, kind, from, to);
    }

    fn switched(&'static self, vcpu: &mut Vcpu, from: u64, to: u64) {
        Client::switched(self, vcpu, from, to);
    }

    fn loaded(&'static self, module: &Module) {
        Client::loaded(self, module);
    }

    fn unloaded(&'static self, module: &Module) {
        Client::unloaded(self, module);
    }

    fn attached(&'static self, vcpu: &mut Vcpu, booted: bool) {
        Client::attached(self, vcpu, booted);
    }

    fn detached(&'static self) {
        Client::detached(self);
    }

    fn results(&'static self) -> Results {
        let mut results = Results { client: C::NAME.to_owned(), ..Results::default() };
        Client::results(self, &mut results);
        results
    }

    fn end(&'static self) {
        Client::end(self);
    }
}

/// A client type that a plugin offers.
pub struct Kind {
    pub(crate) name: &'static str,
    pub(crate) make: fn(&mut Setup) -> Result<&'static dyn Erased, String>,
}

impl Kind {
    /// Makes the kind of a client type.
    pub const fn of<C: Client>() -> Kind {
        Kind { name: C::NAME, make: make::<C> }
    }
}

fn make<C: Client>(setup: &mut Setup) -> Result<&'static dyn Erased, String> {
    let client = C::new(setup)?;
    if C::cell().set(client).is_err() {
        return Err(format!("the client {} is named twice", C::NAME));
    }
    Ok(C::cell().get().ok_or("a client that was just made is gone")?)
}
