//! The cluster's key: one certificate that every member holds, pinned on both sides.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig,
    SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::{Duplex, NetError};
use crate::launch::KeyPem;

/// The name in the certificate. It identifies nobody: the pinned bytes do.
const NAME: &str = "tuplane";

/// A key that cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The system's random source or the library failed.
    #[error("cannot make a key for the cluster: {0}")]
    Generate(String),
    /// Text that is no key.
    #[error("this is not a cluster's key: {0}")]
    Read(String),
}

/// How connections are protected.
#[derive(Debug, Clone)]
pub enum Security {
    /// TLS 1.3; both sides prove that they hold the key.
    Key(ClusterKey),
    /// Plain; only for loopback addresses.
    Insecure,
}

impl Security {
    /// The key that a launcher gave, or none.
    pub fn from_pem(pem: Option<&KeyPem>) -> Result<Self, KeyError> {
        pem.map_or(Ok(Self::Insecure), |pem| ClusterKey::from_pem(pem).map(Self::Key))
    }

    /// Refuses addresses of other machines without a key.
    pub(super) fn permits(&self, address: SocketAddr) -> Result<(), NetError> {
        match self {
            Self::Insecure if !address.ip().to_canonical().is_loopback() => {
                Err(NetError::Insecure { address: address.to_string() })
            }
            _ => Ok(()),
        }
    }
}

/// One self-signed certificate with its private key, shared by all members of a cluster.
#[derive(Clone)]
pub struct ClusterKey {
    pem: KeyPem,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// Never prints the key.
impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

impl ClusterKey {
    /// Makes a new key.
    pub fn generate() -> Result<Self, KeyError> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()])
            .map_err(|e| KeyError::Generate(e.to_string()))?;
        Self::from_pem(&KeyPem { certificate: made.cert.pem(), private: made.signing_key.serialize_pem() })
    }

    /// Reads a key.
    pub fn from_pem(pem: &KeyPem) -> Result<Self, KeyError> {
        let read = |what: &str, e: &dyn std::fmt::Display| KeyError::Read(format!("{what}: {e}"));
        let certificate = CertificateDer::from_pem_slice(pem.certificate.as_bytes())
            .map_err(|e| read("certificate", &e))?
            .into_owned();
        let private =
            PrivateKeyDer::from_pem_slice(pem.private.as_bytes()).map_err(|e| read("private key", &e))?;
        let provider = Arc::new(ring::default_provider());
        let pinned = Arc::new(Pinned { certificate: certificate.clone(), provider: provider.clone() });
        let tls13 = &[&rustls::version::TLS13];
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(tls13)
            .map_err(|e| read("TLS", &e))?
            .dangerous()
            .with_custom_certificate_verifier(pinned.clone())
            .with_client_auth_cert(vec![certificate.clone()], private.clone_key())
            .map_err(|e| read("key pair", &e))?;
        // A resumed session would skip the proof that the peer holds the key.
        client.resumption = rustls::client::Resumption::disabled();
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(tls13)
            .map_err(|e| read("TLS", &e))?
            .with_client_cert_verifier(pinned)
            .with_single_cert(vec![certificate], private)
            .map_err(|e| read("key pair", &e))?;
        server.send_tls13_tickets = 0;
        Ok(Self { pem: pem.clone(), client: Arc::new(client), server: Arc::new(server) })
    }

    /// The key as text, for a launcher to hand on.
    pub fn to_pem(&self) -> &KeyPem {
        &self.pem
    }

    pub(super) async fn connect<S: Duplex>(&self, socket: S) -> io::Result<TlsStream<S>> {
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        TlsConnector::from(self.client.clone()).connect(name, socket).await.map(TlsStream::Client)
    }

    pub(super) async fn accept(&self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(self.server.clone()).accept(socket).await.map(TlsStream::Server)
    }
}

/// Accepts exactly one certificate, whatever its name and dates: its holder proves by signature
/// that it has the private key too.
#[derive(Debug)]
struct Pinned {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        if *shown == self.certificate {
            Ok(())
        } else {
            Err(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }
}

fn no_tls12() -> Result<HandshakeSignatureValid, rustls::Error> {
    Err(rustls::Error::General("TLS 1.3 is the only version here".to_owned()))
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
