//! Rewrites a module so that code that does nothing stands in front of each instruction: `spread IN OUT`.

use guardrail_rewrite::passes::spread::Spread;
use guardrail_rewrite::rewrite;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(from), Some(to), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("usage: spread IN OUT".into());
    };
    let rewritten = rewrite(&from, std::fs::read(&from)?, &mut [&mut Spread])?;
    std::fs::write(to, rewritten.file)?;
    println!("{:?}", rewritten.counts);
    Ok(())
}
