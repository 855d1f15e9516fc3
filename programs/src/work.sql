create table t(k integer primary key, v blob);
insert into t select value, zeroblob(value % 2000) from (with recursive c(value) as (select 1 union all select value + 1 from c where value < 60000) select value from c);
create index i on t(length(v), k);
select count(*), sum(length(v)) from t where length(v) > 1000;
delete from t where k % 3 = 0;
vacuum;
select count(*) from t a join t b on b.k = a.k + 1;
select length(group_concat(hex(v))) from (select v from t limit 3000);
