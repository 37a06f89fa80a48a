//! Crowds that do not mean well: connections that never send a whole request, bodies that trickle, and answers that are never
//! read.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Outcome;

/// How many are silent in the middle of their headers.
pub const HALF_OPEN: usize = 1_000;

/// How many send their body byte by byte.
pub const SLOW: usize = 200;

/// How many there are of those that do not read or do not ask: more than the server has places for.
pub const UNREAD: usize = 4_200;

/// How often each of those that do not read asks for the description of the API: more than both sockets hold.
const ASKED: usize = 10;

/// 250 ms between two bytes of a body: some hundred bytes before its time is over.
const PERIOD: Duration = Duration::from_millis(250);

/// 8,192 files: the largest crowd and whatever else is open.
const FILES: u64 = 8_192;

/// Lets this process, and those that it starts, hold the crowd.
pub fn make_room() -> Outcome<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < FILES) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), ..limit })?;
    }
    Ok(())
}

/// The crowd, until it is dropped.
pub struct Crowd {
    _half_open: Vec<TcpStream>,
    slow: Arc<Mutex<Vec<TcpStream>>>,
    gone: Arc<AtomicBool>,
    trickling: Option<JoinHandle<()>>,
}

impl Crowd {
    /// Gathers in front of a server.
    pub fn gather(address: &str) -> Outcome<Self> {
        let begun = |text: String| -> Outcome<TcpStream> {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.write_all(text.as_bytes())?;
            Ok(stream)
        };
        let headers = "POST /api/v1/namespaces/default/tasks HTTP/1.1\r\nhost: ";
        let half_open = (0..HALF_OPEN).map(|_| begun(headers.to_owned())).collect::<Outcome<Vec<_>>>()?;
        let head = format!("{headers}{address}\r\ncontent-type: application/json\r\ncontent-length: 60000\r\n\r\n{{");
        let slow = (0..SLOW).map(|_| begun(head.clone())).collect::<Outcome<Vec<_>>>()?;
        let (slow, gone) = (Arc::new(Mutex::new(slow)), Arc::new(AtomicBool::new(false)));
        let (streams, stop) = (slow.clone(), gone.clone());
        let trickling = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for stream in streams.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
                    // One that was closed already has had its time.
                    let _ = stream.write_all(b" ");
                }
                std::thread::sleep(PERIOD);
            }
        });
        Ok(Self { _half_open: half_open, slow, gone, trickling: Some(trickling) })
    }

    /// How many of the slow ones the server has not closed.
    pub fn still_there(&self) -> usize {
        let slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        let open = |stream: &&TcpStream| {
            let waits = stream.set_nonblocking(true).is_ok() && stream.peek(&mut [0]).is_err();
            stream.set_nonblocking(false).is_ok() && waits
        };
        slow.iter().filter(open).count()
    }
}

/// Connections that never read, and some that never send, until this is dropped.
pub struct Unread {
    _streams: Vec<TcpStream>,
}

impl Unread {
    /// Gathers in front of a server.
    pub fn gather(address: &str) -> Outcome<Self> {
        let page = format!("GET /openapi.json HTTP/1.1\r\nhost: {address}\r\n\r\n").repeat(ASKED);
        let connect = |number: usize| -> Outcome<TcpStream> {
            let mut stream = TcpStream::connect(address)?;
            match number % 4 {
                0 => stream.write_all(page.as_bytes())?,
                1 => stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n")?,
                _ => {}
            }
            Ok(stream)
        };
        Ok(Self { _streams: (0..UNREAD).map(connect).collect::<Outcome<_>>()? })
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
        if let Some(trickling) = self.trickling.take() {
            // It ends by itself and has nothing to say.
            let _ = trickling.join();
        }
    }
}
