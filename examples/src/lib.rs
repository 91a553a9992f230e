//! What the examples share: where to listen, the loop that accepts, and the end.

use heist::chan::{self, select};
use heist::io;
use heist::net::{TcpListener, TcpStream};
use heist::signal::{self, Signal};
use heist::sync::WaitGroup;
use std::sync::Arc;
use std::time::Duration;

/// Connections that are open at the end have so long for what they are at.
const GRACE: Duration = Duration::from_secs(5);

/// Listens where the first argument says, or else where `default` does, and calls
/// `serve` for each connection on a goroutine of its own, until Ctrl-C or SIGTERM. Then
/// it takes no more connections, and waits a while for those that there are; a second
/// signal ends that, too.
///
/// # Errors
///
/// If it cannot listen there, or not any more, or signals cannot be had.
pub fn listen<F>(default: &str, serve: F) -> io::Result<()>
where
    F: Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static,
{
    let address = std::env::args().nth(1).unwrap_or_else(|| default.to_owned());
    let listener = Arc::new(TcpListener::bind(address)?);
    // First: whoever reads the line may send one at once.
    let signals = signal::notify(&[Signal::INT, Signal::TERM])?;
    println!("listening on {}", listener.local_addr()?);
    let (report, over) = chan::bounded(1);
    drop(heist::go({
        let listener = Arc::clone(&listener);
        move || report.send(accept(&listener, serve))
    }));
    let signal = select! {
        recv(signals) -> signal => signal.map_err(io::Error::other)?,
        recv(over) -> failed => return failed.map_err(io::Error::other)?,
    };
    println!("{signal}: closing down");
    listener.close();
    select! {
        recv(over) -> drained => drained.map_err(io::Error::other)?,
        recv(signals) -> signal => {
            println!("{}: at once", signal.map_err(io::Error::other)?);
            Ok(())
        },
        default(GRACE) => {
            println!("some are still connected; not waiting any longer");
            Ok(())
        },
    }
}

/// Accepts until the listener is closed, and waits for those who are served. What passes
/// by itself `incoming` has dealt with: connections that were given up, or descriptors
/// that have run out.
fn accept<F>(listener: &TcpListener, serve: F) -> io::Result<()>
where
    F: Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static,
{
    let all = WaitGroup::new();
    let accepted = listener.incoming().try_for_each(|stream| {
        let (stream, serve) = (stream?, serve.clone());
        all.go(move || {
            // Answers are small, and others wait for them. How it ends is up to the peer.
            let _ = stream.set_nodelay(true).and_then(|()| serve(stream));
        });
        Ok(())
    });
    all.wait();
    accepted
}
