# One command of a soak: notes its start and its end, works, and writes its output.
#
#   sh task.sh FOLDER STEP NUMBER
#
# FOLDER/plan/STEP-INDEX-NUMBER says what it does (random_pipelines.py writes it): in the first line
# seconds of work, exit code, failures before it succeeds, ticks of its checkpoint, and whether it
# has an output; in the others its input files. The lock is gone when this process is, however it
# ended.
folder=$1 step=$2 number=$3
index=${AWS_BATCH_JOB_ARRAY_INDEX:-0}
key=$step-$index-$number

# A kill may hit a process that this shell has started, and not the shell. This command then ends as
# if it had been hit itself, without a note of what it does not know.
note() {
    time_s=$(date +%s.%N) || exit 137
    echo "$1 $key $BATCHYARD_RUN $AWS_BATCH_JOB_ID $AWS_BATCH_JOB_ATTEMPT $time_s ${2:--}" \
        >> "$folder/events"
}

finish() {
    note end "$1"
    exit "$1"
}

fail() {
    test $? -le 128 || exit 137
    finish "$1"
}

exec 9>> "$folder/locks/$key" 8< "$folder/plan/$key"
flock -n 9 || {
    test $? -le 128 || exit 137
    note twice
    exit 99
}
note start
read -r seconds exit_code failures ticks has_output <&8
inputs=$(cat <&8) || exit 137

progress=progress-$key.txt
tick=0
test ! -e "$progress" || tick=$(wc -l < "$progress") || exit 137
test "$ticks" -gt 0 || sleep "$seconds" 9>&-
while [ "$tick" -lt "$ticks" ]; do
    tick=$((tick + 1))
    sleep "$seconds" 9>&-
    echo "$tick" >> "$progress"
done

test "$exit_code" -eq 0 || finish "$exit_code"
if [ "$failures" -gt 0 ] &&
    [ "$(grep -c "^end $key .* 9\$" "$folder/events")" -lt "$failures" ]; then
    finish 9
fi
if [ "$has_output" = yes ]; then
    mkdir -p "out/$step"
    {
        echo "$key"
        for file in $inputs; do cat "$file" || fail 98; done
        test "$ticks" -eq 0 || cat "$progress"
    } > "content-$key" || fail 97
    sha256sum < "content-$key" > "out/$step/$index-$number.txt" || fail 97
fi
echo "done $key"
finish 0
