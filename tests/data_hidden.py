"""Invisible code points, and control tokens of chat templates, for tests of what reaches a prompt."""

_RANGES = (
    # Default_Ignorable_Code_Point of Unicode 17, from DerivedCoreProperties.txt, including unassigned code points.
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
    # Interlinear annotation, object replacement, layout controls of hieroglyphs, fillers without ink.
    (0xFFF9, 0xFFFC), (0x13430, 0x1343F), (0x16FE4, 0x16FE4), (0x1D159, 0x1D159),
)  # fmt: skip
HIDDEN = [chr(code) for first, last in _RANGES for code in range(first, last + 1)]

CONTROL_TOKENS = (
    "<|im_start|> <|im_end|> <|im_sep|> <|endoftext|> <|endofprompt|> <|begin_of_text|> <|eot_id|> <|eom_id|> "
    "<|start_header_id|> <|end_header_id|> <|python_tag|> <|start|> <|channel|> <|message|> <|return|> <|call|> "
    "<|end|> <|user|> <|assistant|> <|system|> <|observation|> <|fim_prefix|> <|END_OF_TURN_TOKEN|> <|reserved_7|> "
    "<|turn> <turn|> <｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜> <｜tool▁calls▁begin｜> "
    "[INST] [/INST] [TOOL_CALLS] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [SYSTEM_PROMPT] "
    "[/SYSTEM_PROMPT] [THINK] [/THINK] [ARGS] [CALL_ID] [IMG] [CLS] [SEP] [MASK] [PAD] [UNK] [gMASK] [sMASK] "
    "<<SYS>> <</SYS>> <s> </s> <bos> <eos> <pad> <unk> <mask> <cls> <sep> <start_of_turn> <end_of_turn> "
    "<start_of_image> <end_of_utterance> <tool_call> </tool_call> <tool_calls> <tool_response> </tool_response> "
    "<function_calls> <think> </think> <extra_id_0> <unused12> <fim_prefix> <file_sep> <0x0A> <SPECIAL_12> <seed:bos> "
    "<BOS_TOKEN> <EOS_TOKEN> <EOP_TOKEN> <MASK_TOKEN> <sop> <eop> <sot> <eot> <eod> <boi> <eoi> <eoh> <eoa> "
    "<PRE> <SUF> <MID> <fake_token_around_image> <global-img> <row_1_col_1> <image_soft_token> <IMG_CONTEXT> "
    "<image_placeholder> <loc0001> <seg001> <TOKENS_UNUSED_1> <reserved_106> <unused_3> <dummy00001> <ctrl99> "
    "<repo_name> <reponame> <gh_stars> <jupyter_code> <issue_start> <commit_before> <empty_output> "
    "[|system|] [|user|] [|assistant|] [|endofturn|] [TRANSCRIBE] [STREAMING_PAD] [unused1] <beginning_of_sentence> "
    "<end_of_sentence> <start_function_call> <end_function_call> <escape> "
    "<minimax:tool_call> ]~b] ]~!b[ [e~[ ＜s＞ ［INST］"
).split()
