"""Build the packaged sentence-embedding model: all-MiniLM-L6-v2 as one int8 ONNX file.

Run as ``python -m tools.minilm --weights DIR --out DIR``, where the weights folder holds the upstream ``config.json``,
``model.safetensors`` and ``tokenizer.json``. Needs torch, onnx, onnxscript, onnxruntime, safetensors,
tokenizers and transformers; none of them but onnxruntime and tokenizers is needed to use the result.

The graph takes ``input_ids`` and ``attention_mask`` (int64, [batch, sequence]) and gives ``sentence_embedding``
(float32, [batch, 384]): mean pooling over the mask and L2 normalisation are inside it. Steps:

1. the encoder is written out in torch with Q, K and V as one product and the tokens of a batch as rows of one matrix;
2. inputs of the products that have outlying channels are rescaled per channel by powers of two, the weights inversely
   (exact in float32, and it makes the rows easier to quantise);
3. torch's dynamo exporter turns it into ONNX;
4. weights become int8 with one scale per output channel (per row for the word table), and activations are quantised
   while running with one scale per token. A scale per token, where onnxruntime's own dynamic quantisation has one per
   tensor, keeps a text's vector independent of what else is in its batch, and is nearer to float32;
5. the result is compared with the float32 reference of transformers, and refused if it is too far from it.
"""
