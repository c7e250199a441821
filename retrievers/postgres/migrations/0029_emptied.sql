-- A collection whose documents are all gone, and of which some had readers, is shown only to who reads everything: of
-- its documents nobody else need have known.
CREATE OR REPLACE FUNCTION concealed(wholly boolean) RETURNS integer[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    who text := tenant();
    mine text[] := principals();
BEGIN
    RETURN ARRAY(SELECT k.part_of FROM collection k
                 WHERE k.tenant = who AND k.part_of IS NOT NULL
                 GROUP BY k.part_of
                 HAVING NOT CASE WHEN NOT wholly THEN bool_and(readable(k.readers, mine))
                                 ELSE '*' = ANY (mine) OR bool_or(k.documents > 0 AND readable(k.readers, mine)) END);
END $$;
