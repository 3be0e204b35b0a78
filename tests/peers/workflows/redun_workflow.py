"""A redun workflow on AWS Batch: squares, their sum, a script that writes to S3, a failing task."""

from redun import File, script, task

redun_namespace = "peers"


@task(executor="batch")
def square(n: int) -> int:
    if n < 0:
        raise ValueError(f"no square of {n} today")
    return n * n


@task(executor="batch")
def total(numbers: list) -> int:
    return sum(numbers)


@task()
def count_letters(word: str, kept_as: str) -> File:
    command = f"printf '%s' {word} | wc -c > letters.txt"
    return script(command, executor="batch", outputs=File(kept_as).stage("letters.txt"))


@task()
def read(file: File) -> str:
    return file.read()


@task()
def main(kept_as: str, count: int = 6) -> dict:
    squares = [square(n) for n in range(count)]
    return {
        "squares": squares,
        "total": total(squares),
        "letters": read(count_letters("batchyard", kept_as)),
    }


@task()
def broken() -> list:
    return [square(n) for n in (1, 2, -3, 4)]
