//! Prints what an image holds, for a look at it by hand.
use guardrail_binfmt::KernelImage;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let path = args.next().ok_or("usage: image VMLINUZ [KALLSYMS]")?;
    let started = std::time::Instant::now();
    let image = KernelImage::open(path.as_ref())?;
    println!(
        "{} build id {:?}, {} symbols, {} types, opened in {:?}",
        image.release(),
        image.build_id(),
        image.symbol_table().len(),
        image.btf().end_id(),
        started.elapsed()
    );
    match args.next() {
        Some(path) if path == "-" => {
            for symbol in image.symbols() {
                println!("{:016x} {} {}", symbol.address, symbol.kind, symbol.name);
            }
        }
        Some(path) => {
            for line in image.symbol_table().differences(&std::fs::read_to_string(path)?) {
                println!("{line}");
            }
        }
        None => {}
    }
    Ok(())
}
