//! Guards all modules below folders, with an action before and after every call between them and the kernel.
//! Prints which modules could not be guarded: `cargo run --release -p guardrail-rewrite --example thunks --
//! FOLDER…`.
//! The results are verified; they serve no other purpose.

mod guarded;
mod modules;

use guardrail_binfmt::module::unpack;
use guardrail_rewrite::border::Done;
use guardrail_rewrite::border::runtime::Exports;
use guardrail_rewrite::passes::checks::Checks;
use guardrail_rewrite::{Counts, Object, RewriteError, rewrite};

fn main() {
    let runtime = guarded::runtime();
    let (mut sums, mut bytes) = ([0; 5], (0, 0));
    modules::each("guarded", |name, data| {
        let (counts, done) = guard(name, data, &runtime)?;
        bytes = (bytes.0 + counts.old_bytes, bytes.1 + counts.new_bytes);
        let numbers = [done.imports.len(), done.calls, done.entries.len(), done.pointers, done.missed.len()];
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += number;
        }
        Ok(())
    });
    let [imports, calls, entries, pointers, missed] = sums;
    println!("code: {} bytes before, {} after, without thunks", bytes.0, bytes.1);
    println!(
        "{imports} imports, {calls} calls of them, {missed} called from code that the kernel replaces as well"
    );
    println!("{entries} entries, {pointers} pointers to them");
}

fn guard(name: &str, data: Vec<u8>, runtime: &Exports) -> Result<(Counts, Done), RewriteError> {
    let data = unpack(name, data)?;
    let object = Object::read(name, &data)?;
    let mut checks = Checks::new(1).guarded("module", runtime).interposing(guarded::border(&object));
    let rewritten = rewrite(name, data, &mut [&mut checks])?;
    Ok((rewritten.counts, checks.done))
}
