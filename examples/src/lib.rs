//! What the examples share: where to listen, and the loop that accepts.

use heist::io;
use heist::net::{TcpListener, TcpStream};
use heist::signal::{self, Signal};
use std::time::Duration;

/// Listens where the first argument says, or else where `default` does, and calls
/// `serve` for each connection on a goroutine of its own, until Ctrl-C or SIGTERM.
///
/// # Errors
///
/// If it cannot listen there, or signals cannot be had.
pub fn listen<F>(default: &str, serve: F) -> io::Result<()>
where
    F: Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static,
{
    let address = std::env::args().nth(1).unwrap_or_else(|| default.to_owned());
    let listener = TcpListener::bind(address)?;
    // First: whoever reads the line may send one at once.
    let signals = signal::notify(&[Signal::INT, Signal::TERM])?;
    println!("listening on {}", listener.local_addr()?);
    drop(heist::go(move || accept(&listener, serve)));
    let signal = signals.recv().map_err(io::Error::other)?;
    println!("{signal}: closing down");
    Ok(())
}

fn accept<F>(listener: &TcpListener, serve: F)
where
    F: Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static,
{
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let serve = serve.clone();
                drop(heist::go(move || {
                    // Answers are small, and others wait for them.
                    stream.set_nodelay(true)?;
                    serve(stream)
                }));
            }
            // No descriptors left, say: others will be closed.
            Err(error) => {
                eprintln!("accept: {error}");
                heist::time::sleep(Duration::from_millis(10));
            }
        }
    }
}
