module endpoint-auditor.test/oracle/packets

go 1.26.0
