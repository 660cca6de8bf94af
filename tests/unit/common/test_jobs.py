from penstock.common import JobExecutionResult, JobID, JobStatus


def test_only_a_suspended_job_is_over_here_but_not_everywhere() -> None:
    here = {status for status in JobStatus if status.is_terminal_state()}
    everywhere = {status for status in JobStatus if status.is_globally_terminal_state()}
    assert here - everywhere == {JobStatus.SUSPENDED}
    assert everywhere == {JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED}


def test_generated_job_ids_are_distinct_and_32_digits_long() -> None:
    first, second = JobID.generate(), JobID.generate()
    assert first != second
    assert len(str(first)) == 32


def test_a_result_gives_id_runtime_and_accumulators() -> None:
    result = JobExecutionResult(JobID("00ff"), 12, {"n": 3})
    assert (result.get_job_id(), result.get_net_runtime()) == (JobID("00ff"), 12)
    assert result.get_accumulator_result("n") == 3
    assert result.get_accumulator_result("m") is None
    assert result.get_all_accumulator_results() == {"n": 3}
    assert result.is_job_execution_result()
    assert "Job with JobID 00ff has finished.\nJob Runtime: 12 ms" in str(result)
