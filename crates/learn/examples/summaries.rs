//! Prints what functions of a kernel do with their arguments: `summaries VMLINUZ [FUNCTION…]`.

use guardrail_binfmt::KernelImage;
use guardrail_learn::Program;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let image = args.next().ok_or("summaries VMLINUZ [FUNCTION…]")?;
    let wanted: Vec<String> = args.collect();
    let start = Instant::now();
    let image = KernelImage::open(image.as_ref())?;
    eprintln!("read: {:?}", start.elapsed());
    let (program, exports) = Program::new(&image);
    eprintln!("{} exported functions: {:?}", exports.len(), start.elapsed());
    for (name, summary) in exports.iter().filter(|(name, _)| wanted.contains(name)) {
        println!(
            "{name}: result {:?}, freed {:x}, shared {}, {:?}",
            summary.result, summary.freed, summary.shared, summary.unknown
        );
        for (arg, effects) in
            summary.args.iter().enumerate().filter(|(_, effects)| **effects != Default::default())
        {
            let site = summary.sites[arg].write.or(summary.sites[arg].other);
            let at = site.map_or(String::new(), |site| {
                format!("{}+{:#x}", program.names.name(site.function), site.offset)
            });
            println!("  {arg}: {effects:?} at {at}");
        }
    }
    Ok(())
}
