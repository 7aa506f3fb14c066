import pytest

from server_process import running


@pytest.fixture(scope="session")
def server():
    """Four slots, all read-only endpoints on."""
    with running("-c", "2048", "-np", "4", "--metrics", "--slots", "-s", "7", "--no-warmup") as process:
        yield process
        assert process.process.poll() is None, "the server has died:\n" + process.log()


@pytest.fixture(scope="session")
def client(server):
    import openai

    return openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0)
