//! The minimum of an HTTP service: bare hyper that sends petstore's responses as fixed bytes.
//!
//! It has no API keys, JSON, database or timeouts, and petstore's allocator. Both spend the cost of sockets, hyper and the
//! bytes themselves; the difference is the cost of petstore.
//!
//! `yardstick --answers FOLDER [--listen 127.0.0.1:0] [--threads 1] [--tls-cert FILE --tls-key FILE]` prints the bound
//! address and serves until it is killed. The folder has petstore's response to each operation.

use std::{env, error::Error, fs, net::SocketAddr, path::Path, sync::Arc};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    header::{HeaderName, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    runtime,
};
use tokio_rustls::TlsAcceptor;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let options = Options::parse(env::args().skip(1))?;
    // A single thread without work stealing is the cheapest runtime.
    let runtime = match options.threads {
        1 => runtime::Builder::new_current_thread().enable_io().build()?,
        threads => runtime::Builder::new_multi_thread().worker_threads(threads).enable_io().build()?,
    };
    let tls = options.tls.map(|(certificate, key)| tls(&certificate, &key)).transpose()?;
    runtime.block_on(serve(options.listen, tls, Answers::read(Path::new(&options.answers))?))
}

/// Returns the service's configuration of TLS.
fn tls(certificate: &str, key: &str) -> Result<TlsAcceptor, Failure> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions()?.with_no_client_auth();
    let mut config = config.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ticketer = ring::Ticketer::new()?;
    Ok(Arc::new(config).into())
}

async fn serve(address: SocketAddr, tls: Option<TlsAcceptor>, answers: Answers) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).await?;
    println!("{}", listener.local_addr()?);

    let answers = Arc::new(answers);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (answers, tls) = (Arc::clone(&answers), tls.clone());
        tokio::spawn(async move {
            match tls {
                None => serve_connection(stream, &answers).await,
                // An error means only that the client does not speak TLS.
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve_connection(stream, &answers).await;
                    }
                }
            }
        });
    }
}

async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin, answers: &Answers) {
    let service = service_fn(|request| answer(answers, request));
    // One buffer: vectored writes cost more.
    let http = http1::Builder::new().pipeline_flush(true).writev(false).serve_connection(TokioIo::new(stream), service);
    // An error means only that the client has closed the connection.
    let _ = http.await;
}

async fn answer(answers: &Answers, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let answer = answers.to(&request);
    if request.method() == Method::POST {
        // The body must be received, but is not used.
        request.into_body().collect().await?;
    }
    let mut response = Response::new(Full::new(answer.body.clone()));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers.clone();
    Ok(response)
}

/// Petstore's response to each operation.
struct Answers {
    list_20: Answer,
    list_20_cold: Answer,
    list_100: Answer,
    get: Answer,
    create: Answer,
    message: Answer,
    nothing: Answer,
}

impl Answers {
    fn read(folder: &Path) -> Result<Self, Failure> {
        let answer = |name| Answer::read(&folder.join(name));
        Ok(Self {
            list_20: answer("list20")?,
            list_20_cold: answer("list20cold")?,
            list_100: answer("list100")?,
            get: answer("get")?,
            create: answer("create")?,
            message: answer("message")?,
            nothing: Answer { status: StatusCode::NOT_FOUND, headers: HeaderMap::new(), body: Bytes::new() },
        })
    }

    fn to<B>(&self, request: &Request<B>) -> &Answer {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/v1/pets") => match request.uri().query() {
                Some("limit=100") => &self.list_100,
                Some(query) if query.contains("after=") => &self.list_20_cold,
                _ => &self.list_20,
            },
            (&Method::GET, path) if path.starts_with("/v1/pets/") => &self.get,
            (&Method::POST, "/v1/pets") => &self.create,
            (&Method::POST, "/v1/messages") => &self.message,
            _ => &self.nothing,
        }
    }
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    /// Reads a status, header lines, an empty line and a body. hyper adds the length and the date.
    fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let (head, body) = text.split_once("\n\n").ok_or("an empty line comes before the body")?;
        let mut lines = head.lines();
        let status = lines.next().unwrap_or_default().parse()?;
        let headers = lines.map(header).collect::<Result<_, _>>()?;
        Ok(Self { status, headers, body: body.to_owned().into() })
    }
}

fn header(line: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    let (name, value) = line.split_once(": ").ok_or_else(|| format!("no header: {line}"))?;
    Ok((name.parse()?, value.parse()?))
}

struct Options {
    answers: String,
    listen: SocketAddr,
    threads: usize,
    /// The files of the certificate and of its key.
    tls: Option<(String, String)>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut options = Self { answers: String::new(), listen: ([127, 0, 0, 1], 0).into(), threads: 1, tls: None };
        let (mut certificate, mut key) = (None, None);
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--answers" => options.answers = value,
                "--listen" => options.listen = value.parse()?,
                "--threads" => options.threads = value.parse()?,
                "--tls-cert" => certificate = Some(value),
                "--tls-key" => key = Some(value),
                _ => return Err(format!("unknown option {name}").into()),
            }
        }
        if options.answers.is_empty() {
            return Err("--answers is missing: a folder of answers, as scripts/bench makes it".into());
        }
        options.tls = certificate.zip(key);
        Ok(options)
    }
}
