"""A stand-in for Redis, for trying things out where no server is installed. It keeps nothing."""

import argparse

from fakeredis import TcpFakeServer


def main() -> None:
    """Serve on 127.0.0.1 until a signal ends the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    TcpFakeServer(("127.0.0.1", parser.parse_args().port), server_version=(7, 0)).serve_forever()


if __name__ == "__main__":
    main()
