-- What a collection holds, as somebody has said it: questions that name no collection find theirs by it.
ALTER TABLE collection ADD COLUMN description text NOT NULL DEFAULT '';
COMMENT ON COLUMN collection.description IS 'as given; where it is empty, a draft is made of the documents when it is asked for';
